"""Drives vLLM's schedulers with scripted tokens, in vLLM's interpreter: KIND MODEL_FOLDER."""

from __future__ import annotations

import sys

from benchmarks.vllm_recorder import make_request, make_scheduler, serve

STOP = 999


def token(name: str, position: int) -> int:
    """r1 and r4 end of themselves, at a place that the scheduler does not know beforehand."""
    if (name, position) in (("r1", 40), ("r4", 31)):
        return STOP
    return 100 + (31 * position + ord(name[1])) % 500


def main(kind: str, model: str) -> None:
    settings = {"max_num_seqs": 6, "max_num_batched_tokens": 64, "max_model_len": 128}
    scheduler = make_scheduler(kind, model, num_blocks=9, block_size=16, **settings)
    arrivals = {
        step: [
            make_request(scheduler, f"r{i}", range(10 * i, 10 * i + 22 + i), 24, stop_token_ids=[STOP])
            for i in numbers
        ]
        for step, numbers in {0: (0, 1, 2), 2: (3, 4), 30: (5,)}.items()
    }
    serve(scheduler, arrivals, token, ahead=int(kind == "async"), aborts={9: ["r3"], 33: ["r5"]})
    scheduler.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:3])
