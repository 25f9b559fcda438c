"""The keys, in one table: what the screen does on each, and what help and footer say about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KEYS", "Key", "action_of"]


@dataclass(frozen=True, slots=True)
class Key:
    """names: as the terminal reports them. shown: as people write them."""

    names: tuple[str, ...]
    action: str
    shown: str
    text: str
    short: str = ""  # for the footer


KEYS: tuple[Key, ...] = (
    Key(("space",), "toggle", "space", "play or pause; of a live run, the engine itself", "play"),
    Key(("right", "l"), "step(1)", "→ l", "one step forward", "step"),
    Key(("left", "h"), "step(-1)", "← h", "one step back"),
    Key(("shift+right", "L"), "step(10)", "⇧→ L", "ten steps forward"),
    Key(("shift+left", "H"), "step(-10)", "⇧← H", "ten steps back"),
    Key(("home",), "first", "home", "the first step"),
    Key(("end",), "last", "end", "the last step; of a live run, follow it"),
    Key(("colon",), "ask_step", ":N :+N :-N", "go to step N, or N steps on or back", "go to"),
    Key(("n",), "event(1)", "n", "the next event of the chosen kind", "event"),
    Key(("N",), "event(-1)", "N", "the previous event"),
    Key(("e",), "next_kind", "e", "choose the kind: preemption, finish, admission, refusal, first token, …"),
    Key(
        ("b",),
        "ask_condition",
        "b",
        "break where a condition begins to hold: free<2, preempted, A.decode",
        "break",
    ),
    Key(("m",), "mark", "m a", "set mark a, or any other letter"),
    Key(("apostrophe", "'"), "to_mark", "' a", "go to mark a; '' goes back to where you were"),
    Key(("left_square_bracket",), "faster(-1)", "[", "play slower"),
    Key(("right_square_bracket",), "faster(1)", "]", "play faster"),
    Key(("up", "k"), "request(-1)", "↑ k", "select the request before"),
    Key(("down", "j"), "request(1)", "↓ j", "select the request after"),
    Key(("enter",), "inside", "enter", "into the panel: the arrows pick in it", "pick"),
    Key(("escape",), "escape", "esc", "out of the panel, out of a search"),
    Key(("tab",), "panel(1)", "tab", "the next panel", "panel"),
    Key(("shift+tab",), "panel(-1)", "⇧tab", "the panel before"),
    *(Key((str(i),), f"panel_number({i})", str(i), f"panel {i}") for i in range(1, 9)),
    Key(("z",), "zoom", "z", "zoom the mask in and out"),
    Key(("t",), "align", "t", "compared runs: by step, or by time"),
    Key(("d",), "difference", "d", "compared runs: to the first step in which they differ"),
    Key(("s",), "save", "s", "save the screen as SVG"),
    Key(("question_mark",), "help", "?", "this help", "help"),
    Key(("ctrl+p",), "command_palette", "ctrl+p", "all commands, by name"),
    Key(("q",), "quit", "q", "quit", "quit"),
)

_ACTIONS = {name: key.action for key in KEYS for name in key.names}


def action_of(key: str, character: str | None) -> str | None:
    """The action of a key; letters count with their case."""
    if character is not None and character in _ACTIONS:
        return _ACTIONS[character]
    return _ACTIONS.get(key)
