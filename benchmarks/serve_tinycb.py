"""tinycb on one workload: `python -m benchmarks.serve_tinycb WORK.json [key=value …]` prints one JSON line.

key=value pairs are EngineConfig fields.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks import workload
from tinycb import Engine, EngineConfig, SamplingParams


def main(path: str, *settings: str) -> None:
    work = workload.load(Path(path))
    options = dict(setting.split("=", 1) for setting in settings)
    config = EngineConfig(max_num_seqs=workload.MAX_NUM_SEQS, prefix_caching=False, **options)  # type: ignore[arg-type]
    engine = Engine.from_pretrained("smollm2-135m", config)
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in work.lengths]
    engine.generate(
        [prompt[:9] for prompt in work.prompts[:3]], SamplingParams(max_tokens=3)
    )  # compile, touch
    start = time.perf_counter()
    outputs = engine.generate(work.prompts, params)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "tokens": [output.token_ids for output in outputs]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
