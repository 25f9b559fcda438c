"""Which backend runs, what is loaded for it, and how the loops live beside torch, threads and processes."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from .batches import Backend, assert_right, make_batch, oracle

CALL = """
import torch
from tinycb_kernels import varlen_attention
q = torch.randn(3, 2, 16)
starts = torch.tensor([0, 3], dtype=torch.int32)
attend = lambda backend: varlen_attention(q, q, q, starts, starts, backend=backend)
"""


def run(script: str, **environment: str) -> str:
    """A process of its own, without this one's interpreter; its output, or its error."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", CALL + script], env=inherited | environment, capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr


def test_importing_loads_neither_triton_nor_numba() -> None:
    script = "import sys; attend('torch'); print('triton' in sys.modules, 'numba' in sys.modules)"
    assert run(script) == "False False"


def test_importing_never_turns_the_interpreter_on() -> None:
    assert run("import os; print('TRITON_INTERPRET' in os.environ)") == "False"


def test_triton_on_a_cpu_without_its_interpreter_is_a_clear_error(triton_backend: Backend) -> None:
    assert "ValueError: backend: 'triton' on CPU tensors needs Triton's interpreter" in run(
        "attend('triton')"
    )


def test_triton_imported_too_early_is_a_clear_error(triton_backend: Backend) -> None:
    script = "import triton, os; os.environ['TRITON_INTERPRET'] = '1'; attend('triton')"
    assert "before anything imports triton" in run(script)


def test_auto_on_a_cpu_is_the_loops(numba_backend: Backend) -> None:
    script = "import sys; a = attend('auto'); print(torch.equal(a, attend('numba')), 'triton' in sys.modules)"
    assert run(script) == "True False"


def test_auto_without_numba_is_torch() -> None:
    script = "import sys; sys.modules['numba'] = None; print(torch.equal(attend('auto'), attend('torch')))"
    assert run(script) == "True"
    assert "'numba' is not installed" in run("import sys; sys.modules['numba'] = None; attend('numba')")


def test_torch_keeps_its_number_of_threads(numba_backend: Backend) -> None:
    script = "torch.set_num_threads(1); attend('numba'); print(torch.get_num_threads())"
    assert run(script) == "1"


def test_a_forked_child_is_told_to_spawn(numba_backend: Backend) -> None:
    script = """
import os
attend("numba")
if (child := os.fork()) == 0:
    try:
        attend("numba")
    except RuntimeError as error:
        print("spawn" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert run(script) == "True"


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_calls_from_many_threads(numba_backend: Backend, layer: str) -> None:
    """The lock is what keeps Numba's own thread pool, `workqueue`, from ending the process."""
    script = """
import threading
expected = attend("torch")
results = []
def work():
    for _ in range(20):
        results.append(torch.allclose(attend("numba"), expected, atol=1e-6))
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(len(results), all(results))
"""
    output = run(script, NUMBA_THREADING_LAYER=layer)
    if "No threading layer could be loaded" in output:
        pytest.skip(f"Numba has no {layer} threading layer here")
    assert output == "80 True"


def test_threads_of_one_process_share_the_loops(numba_backend: Backend) -> None:
    batch = make_batch([(3, 40), (1, 90)])
    reference = oracle(batch)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for path in ("varlen", "paged") * 5:
                assert_right(batch.attend(path, numba_backend), batch, reference)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("path", ["varlen", "paged"])
def test_validate_false_can_be_captured_in_a_cuda_graph(triton_backend: Backend, path: str) -> None:
    """Reading a device while a graph is captured is an error, so a capture proves that nothing is read."""
    batch = make_batch([(3, 40), (1, 1500)]).to(triton_backend.device)
    out = torch.empty_like(batch.q)
    more = {"plan": batch.plan()} if path == "paged" else {}
    batch.attend(path, triton_backend, out=out, **more)  # compiles the kernels
    expected = out.clone()
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch.launch(path, triton_backend, out=out, validate=False, **more)
    graph.replay()
    assert torch.equal(out, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_capture_without_a_plan_is_a_clear_error(triton_backend: Backend) -> None:
    batch = make_batch([(3, 40), (1, 90)]).to(triton_backend.device)
    with (
        pytest.raises(ValueError, match=r"^plan: got None while a CUDA graph is captured"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        batch.launch("paged", triton_backend, validate=False)
