"""Pictures of a run, drawn from its StepRecords: pure functions to rich renderables.

Reading order: `signs.py` (letters, colours, glyphs), `run_state.py` (what the records add up to),
`packed_row.py`, `timeline.py`, then what is made of them: `picture.py` (the live one), `results.py` (the end
of a run) and `comparison.py`. No engine and no torch here; `tinycb.commands` owns the terminal.
"""
