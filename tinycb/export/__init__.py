"""A trace in another program's format.

Reading order: `perfetto.py`, what of a run becomes which track, slice, counter or flow; `notes.py`, what
stands on a slice; `perfetto_file.py`, how it is written.
"""
