"""The built-in run: six small requests that between them meet every idea of a scheduler.

    A  runs from the start and finishes first; D takes its place in the very next step
    B  has a prompt longer than the budget of a step: it is computed in chunks, while A decodes
    C  waits until B's chunks leave it room
    D  begins as B does, and finds those blocks in the prefix cache; it is preempted when the blocks run out,
       and comes back to blocks of its own that are still cached
    E  waits for a place, and is preempted in the midst of its answer
    F  could never fit, and is refused

Tokens are given, not computed, and the clock is simulated: a step costs 10 ms and 2 ms a token. So every run
is the same to the last byte but for the moment at which it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tinycb.config import EngineConfig
from tinycb.engine import Engine
from tinycb.executors import ExecutorOutput, ScheduledStep, ScriptedExecutor
from tinycb.request import Request, SamplingParams
from tinycb.tokenizer import Tokenizer

__all__ = ["TOUR_CONFIG", "Visitor", "WordTokenizer", "tour", "write_tour"]

TOUR_CONFIG = EngineConfig(
    batching="chunked", block_size=4, num_blocks=15, max_num_batched_tokens=8, max_num_seqs=3, check=True
)
_SYSTEM = "You are a patient guide . Answer in one short line :"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A request of the tour: before which step it comes, what it asks, and what it will be answered."""

    request_id: str
    step: int
    prompt: str
    answer: str


_VISITORS = (
    Visitor("A", 0, "Name the four seasons", "spring , then summer , then autumn , then winter ."),
    Visitor(
        "B",
        1,
        f"{_SYSTEM} what does an inference server do all day ?",
        "It packs the tokens of many people into one row , runs it once , and then deals new tokens out .",
    ),
    Visitor(
        "C", 3, "Count with me : one two three", "four five six seven eight nine ten eleven twelve thirteen ."
    ),
    Visitor("D", 8, f"{_SYSTEM} what is a block ?", "A page for the keys and values of four tokens ."),
    Visitor("E", 8, "Once upon a time", "there was a queue , and it grew shorter ."),
    Visitor("F", 16, "far too long " * 30, ""),
)


class WordTokenizer(Tokenizer):
    """A word is a token. Its vocabulary is the words it has met."""

    def __init__(self) -> None:
        super().__init__(None)
        self._words: list[str] = []
        self._ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        for word in text.split():
            if word not in self._ids:
                self._ids[word] = len(self._words)
                self._words.append(word)
        return [self._ids[word] for word in text.split()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(self.token_text(token_id) for token_id in token_ids)

    def is_silent(self, token_id: int) -> bool:
        return not 0 <= token_id < len(self._words)

    def token_text(self, token_id: int) -> str:
        return " " + self._words[token_id]

    def ends_inside_character(self, token_id: int) -> bool:
        return False


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _TimedExecutor(ScriptedExecutor):
    """Tokens as they are given, at a price in simulated seconds."""

    clock: _Clock

    def execute(self, step: ScheduledStep) -> ExecutorOutput:
        tokens = sum(step.scheduled.values())
        if step.pad:
            tokens = len(step.requests) * max(step.scheduled.values(), default=0)
        self.clock.now += 0.010 + 0.002 * tokens
        return super().execute(step)


def tour(trace: str | Path, config: EngineConfig = TOUR_CONFIG) -> Engine:
    """Run the tour and write its trace. config: another policy sees the same requests at the same steps."""
    words, clock = WordTokenizer(), _Clock()
    prompts = {visitor.request_id: words.encode(visitor.prompt) for visitor in _VISITORS}
    answers = {visitor.request_id: words.encode(visitor.answer) for visitor in _VISITORS}
    executor: Any = _TimedExecutor(answers, name="scripted tour")
    executor.clock = clock
    waiting = list(_VISITORS)
    with Engine(config, executor, words, trace=trace, clock=clock) as engine:
        while waiting or engine.has_unfinished_requests():
            while waiting and waiting[0].step <= engine.step_count:
                visitor = waiting.pop(0)
                params = SamplingParams(max_tokens=max(1, len(answers[visitor.request_id])))
                request = Request(visitor.request_id, prompts[visitor.request_id], params)
                try:
                    engine.add_request(request, prompt=visitor.prompt)
                except ValueError:
                    continue  # the refusal is in the record
            engine.step()
    return engine


def write_tour(folder: Path, batching: str = "chunked") -> Path:
    """The tour under a policy, as a trace in `folder`."""
    path = folder / f"tour.{batching}.jsonl"
    tour(path, replace(TOUR_CONFIG, batching=batching))
    return path
