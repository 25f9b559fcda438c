"""Workloads that tinycb brings along: what arrives, when, and how long it gets.

`tour.py` is the run that `tinycb tui` opens with.
"""
