"""What importing costs: nothing is loaded that is not used yet."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "numba", "triton", "rich", "textual", "hypothesis"}


@pytest.mark.parametrize(
    ("statement", "may_load"),
    [
        ("import tinycb", set()),
        ("from tinycb import Engine, EngineConfig, Request, SamplingParams", set()),
        ("from tinycb.executors import LlamaExecutor, ScriptedExecutor", set()),
        ("import tinycb.scheduling", set()),
        ("import tinycb.tracing", set()),
        ("import tinycb.cli", set()),
        ("import tinycb.costs.roofline, tinycb.costs.shapes, tinycb.costs.sizing", set()),
        ("import tinycb.workloads, tinycb.simulation", set()),
        ("import tinycb_kernels", {"torch"}),
    ],
)
def test_an_import_loads_nothing_heavy_that_it_does_not_need(statement, may_load):
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(loaded.stdout.split()) & HEAVY <= may_load


def test_importing_the_kernels_does_not_choose_the_interpreter():
    forget = "import os; os.environ.pop('TRITON_INTERPRET', None)"
    code = f"{forget}; import tinycb_kernels; print(os.environ.get('TRITON_INTERPRET'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


def test_the_public_names_are_those_of_the_package():
    import tinycb

    for name in tinycb.__all__:
        assert getattr(tinycb, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = tinycb.Nothing
