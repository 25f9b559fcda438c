"""The child's half of `worker.py`: answers questions, one line of JSON each, until nobody asks any more.

Run as `python -m tinycb.proofs.worker_process`, so that what the parent sets in the environment comes before
every import. The pipes are moved out of the subject's reach first.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Load the subject that the first line names, then check examples."""
    questions, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    asked: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(questions, asked), daemon=True).start()

    def answer(values: dict[str, Any]) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    setup = asked.get()
    from tinycb.proofs.subjects import CannotLoad, load_subject

    try:
        if setup["gpu"]:
            import torch

            if not torch.cuda.is_available():
                raise CannotLoad("--gpu: torch finds no CUDA device here")
        subject = load_subject(setup["subject"], setup["kind"])
    except CannotLoad as error:
        answer({"cannot": str(error)})
        return
    answer({})
    while True:
        question = asked.get()
        answer(_check(subject, setup, question))


def _listen(questions: Any, asked: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in questions:
        asked.put(json.loads(line))
    os._exit(0)  # the parent is gone, whatever the subject is in the middle of


def _check(subject: Any, setup: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    from tinycb.proofs.encoding import decode
    from tinycb.proofs.registry import find_theorem
    from tinycb.proofs.theorem import CannotTry, Counterexample

    theorem = find_theorem(setup["kind"], question["theorem"], exact=setup["exact"])
    example = decode(question["example"])
    try:
        if question["trace"]:
            from tinycb.proofs.serving import write_trace

            failure = write_trace(theorem, subject, example, question["trace"])
            if failure is not None:
                raise failure
        else:
            theorem.check(subject, example)
    except CannotTry as error:
        return {"untried": str(error)}
    except Counterexample as error:
        return {"words": error.words, "picture": error.picture if question["picture"] else ""}
    except Exception as error:
        return {
            "words": f"it raised {type(error).__name__}: {' '.join(str(error).split())[:400]}",
            "picture": "",
        }
    return {}


if __name__ == "__main__":
    main()
