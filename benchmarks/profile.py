"""Writes into docs/speed.md where tinycb's time goes, and how far it is from its matrix products alone.

    python -m benchmarks.profile                                   fp32, every workload; some minutes
    python -m benchmarks.profile --workloads mixed16 --dtypes bfloat16

The same workloads and settings as `make bench`, measured as `tinycb profile` does.
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from benchmarks.speed.machine import machine_name
from benchmarks.speed.page import write_page
from benchmarks.speed.results import ProfileEntry, Results
from benchmarks.speed.serve_tinycb import Service
from benchmarks.speed.systems import ROOT
from benchmarks.speed.workloads import MAX_NUM_SEQS, WORKLOADS, warm_up
from tinycb import EngineConfig, Request, SamplingParams
from tinycb.commands.neighbours import busy_neighbours
from tinycb.profiling import profile

DTYPES = ("float32", "bfloat16")


def measure(service: Service, name: str, dtype: str) -> ProfileEntry:
    """One workload, after a warm-up."""
    work = WORKLOADS[name].make(service.loaded.config.vocab_size)
    service.serve(warm_up(work))
    service.write_cache(work)
    busy = sum(neighbour.share for neighbour in busy_neighbours())
    requests = [
        Request(f"{name} {i}", prompt, SamplingParams(max_tokens=length, ignore_eos=True))
        for i, (prompt, length) in enumerate(zip(work.prompts, work.lengths, strict=True))
    ]
    found = profile(service.engine, requests)
    service.engine.outputs.clear()
    return ProfileEntry(
        *(name, dtype),
        steps=found.steps,
        output_tokens=found.output_tokens,
        seconds=found.seconds,
        parts=found.parts,
        date=date.today().isoformat(),
        busy=round(busy, 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(WORKLOADS)
    parser.add_argument(
        "--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS], metavar="NAME", help=f"of {names}"
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=[*DTYPES[:1]], metavar="NAME")
    parser.add_argument("--model", default="smollm2-135m", metavar="MODEL", help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", metavar="FOLDER", help="default: docs")
    arguments = parser.parse_args()
    if not arguments.out.is_dir():
        parser.error(f"--out {arguments.out} is not a folder")
    try:
        results = Results.continued(arguments.out / "speed.json", machine_name(), arguments.model)
    except ValueError as error:
        parser.error(str(error))
    for dtype in arguments.dtypes:
        config = EngineConfig(dtype=dtype, max_num_seqs=MAX_NUM_SEQS, prefix_caching=False)
        service = Service(arguments.model, config)
        for name in arguments.workloads:
            entry = measure(service, name, dtype)
            results.put_profile(entry)
            results.write(arguments.out / "speed.json")
            write_page(results, arguments.out)
            times = entry.seconds / entry.floor
            print(f"{name}, {dtype}: {entry.seconds:.1f} s, {times:.2f} times its products", flush=True)
    print(f"wrote {arguments.out / 'speed.md'}")


if __name__ == "__main__":
    main()
