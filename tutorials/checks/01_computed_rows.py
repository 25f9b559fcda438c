"""Every prompt and answer of up to eight tokens, beside what tinycb's engine runs."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.learn import expect

HINTS = [
    "With a cache: the prompt's rows, once; then one row a forward. How many forwards come after the first?",
    "Without: the first forward has the prompt, the second one row more, and so on. It is a sum.",
    "The last token comes out of the last forward. Nothing is asked of it, so its own row is never computed.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `computed_rows` is right."""
    for prompt, output in product(range(1, 9), repeat=2):
        case = {"num_prompt_tokens": prompt, "num_output_tokens": output}
        with_cache = exercise.computed_rows(prompt, output, True)
        without = exercise.computed_rows(prompt, output, False)
        case |= {"with the cache": with_cache, "without": without}
        is_count = type(with_cache) is int and type(without) is int
        expect(is_count, "the answer is not a whole number", **case)
        expect(
            with_cache != prompt + output,
            "the row of the last token was counted, which nobody computes",
            **case,
        )
        expect(
            output > 1 or with_cache == without == prompt,
            "an answer of one token does not take one forward of the prompt",
            **case,
        )
        expect(without >= with_cache, "a cache made more work", **case)
        rows = _rows([(prompt, output)])
        expect(with_cache == rows, "with the cache, tinycb computed another number", **case, tinycb=rows)
        rows = _rows([(prompt + i, 1) for i in range(output)])
        expect(without == rows, "without the cache, tinycb computed another number", **case, tinycb=rows)


def _rows(requests: list[tuple[int, int]]) -> int:
    """What an engine runs for requests of (prompt tokens, output tokens), one after another."""
    scripts = {f"r{i}": [7] * output for i, (_, output) in enumerate(requests)}
    config = EngineConfig(batching="continuous", max_num_seqs=1, num_blocks=8, prefix_caching=False)
    engine = Engine(config, ScriptedExecutor(scripts))
    for i, (prompt, output) in enumerate(requests):
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        engine.add_request(Request(f"r{i}", [1] * prompt, params))
    while engine.has_unfinished_requests():
        engine.step()
    return engine.metrics.totals.forward_tokens
