"""What the engine's tests share: scripted engines, and the run of one to its end."""

from collections.abc import Iterable

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScheduledStep, ScriptedExecutor
from tinycb.tracing import StepRecord

POLICIES = ["static", "continuous", "chunked"]


class Scripts(dict):
    """Scripts for any request: r's n-th token is a function of its name and n."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> list[int]:
        return [(sum(map(ord, name)) * 31 + 7 * n) % 97 for n in range(2000)]


class Flaky(ScriptedExecutor):
    """Raises in the steps it is told to."""

    def __init__(self, scripts, fail_at: Iterable[int] = (), error: Exception | None = None) -> None:
        super().__init__({})
        self.scripts = scripts
        self.fail_at = set(fail_at)
        self.calls = 0
        self.error = error or RuntimeError("the device went away")

    def execute(self, step: ScheduledStep):
        self.calls += 1
        if self.calls - 1 in self.fail_at:
            raise self.error
        return super().execute(step)


def scripted_engine(scripts=None, **config) -> Engine:
    """An engine that checks its invariants after every step."""
    defaults = {"check": True, "block_size": 4, "num_blocks": 32, "max_num_batched_tokens": 16}
    executor = Flaky(Scripts() if scripts is None else scripts)
    return Engine(EngineConfig(**(defaults | config)), executor)


def request(name: str, prompt: int | list[int], max_tokens: int = 4, **params) -> Request:
    """A request of `prompt` tokens; an int makes that many, different from those of other names."""
    if isinstance(prompt, int):
        seed = sum(map(ord, name))
        prompt = [(seed * 13 + 5 * i) % 89 for i in range(prompt)]
    return Request(name, prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True, **params))


def finish(engine: Engine, limit: int = 2000, observe=lambda record: None) -> list[StepRecord]:
    """Step to the end; a run that does not end is a failure. `observe` sees each record while it is fresh."""
    records = []
    while engine.has_unfinished_requests():
        records.append(engine.step())
        observe(records[-1])
        assert len(records) < limit, f"no end after {limit} steps: {records[-1]}"
    assert engine.pool.num_free == engine.pool.num_blocks, "blocks leaked"
    return records


def answers(engine: Engine) -> dict[str, list[int]]:
    return {name: output.token_ids for name, output in engine.outputs.items()}


def script(name: str, count: int) -> list[int]:
    return Scripts()[name][:count]
