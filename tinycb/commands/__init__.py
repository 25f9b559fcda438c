"""The commands of `tinycb`, one module each, loaded when asked for.

A module has `EXAMPLES`, `add_arguments(parser)` and `run(args)`, which returns the exit code, and imports
neither torch nor rich at its top. To add a command, write its module and give it a line in `COMMANDS`.
"""

from __future__ import annotations

__all__ = ["COMMANDS"]

COMMANDS: dict[str, str] = {
    "run": "serve prompts on a model, and watch every step",
    "tui": "step through a run, forward and back, and see why",
    "show": "print one step of a trace as plain text",
    "export": "write a trace in Perfetto's format",
    "replay": "run a trace again and name the first step that differs",
    "diff": "compare two traces, ours and vLLM's or any two, step by step",
    "check": "look for inputs that break your own kernel or scheduler",
    "budget": "how many requests fit in memory, and what a step costs on paper",
    "simulate": "serve public traffic on a modelled device, and compare policies",
    "bench": "serve traffic on the real model in real time, beside what is modelled",
    "profile": "where the time of a step goes, part by part",
    "learn": "the tutorials: list the chapters, run one, check its exercises",
    "doctor": "what this machine will use, and what is missing",
}
