"""The visualizer: replays a trace, or follows a live run, and shows why every step went as it did.

Reads StepRecords, through `tinycb.tracing`, and knows no engine and no torch. Reading order: `source.py`
(where records come from), `snapshot.py` (one step, all that any panel needs), `selection.py` (what is looked
at), `history.py` (what the steps add up to), `drawing.py` and `panels/` (pure drawings), `session.py` (what
the keys do), then `panel_widget.py`, `screen.py` and `app.py`, which put them on a terminal. `show.py` prints
the same drawings as plain text, `compare.py` shows two runs side by side, and `quiz.py` asks what comes next.
"""
