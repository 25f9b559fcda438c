"""A trace in another program's format.

Reading order: `perfetto.py`, what of a run becomes which track, slice, counter or flow; `perfetto_file.py`,
how those are written.
"""
