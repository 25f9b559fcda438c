"""Every planted fault is found by the theorem that names it, within its budget, and leaves no trace."""

import sys

import pytest
import torch

from tinycb.proofs.fault_table import scope_of, subject_of, theorem_of, try_fault
from tinycb.proofs.planted import FAULTS, active, planted
from tinycb.proofs.planting import rewritten
from tinycb.proofs.theorem import Counterexample
from tinycb.scheduling import BlockPool, Scheduler
from tinycb_kernels import paged_attention

REQUIRED = {
    "mask alignment",
    "request boundary",
    "offsets",
    "last block",
    "GQA mapping",
    "NaN past the end",
    "-1 slots",
    "32-bit offsets",
    "hash before compute",
    "hash without compare",
    "double free",
    "missing free on abort",
    "recompute that forgets the output",
    "hit that covers the last token",
    "budget overrun",
    "stale block table",
}


@pytest.mark.slow  # each fault in a kernel has it compiled anew; together they take half a minute
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found_by_its_theorem_within_its_budget(name):
    row = try_fault(name, shrink=False)
    assert row.is_found, f"{row.budget} examples of {row.theorem} do not notice {name}"
    assert row.needed <= row.budget


def test_the_faults_cover_what_goes_wrong_in_engines_and_kernels():
    assert {fault.covers for fault in FAULTS.values()} >= REQUIRED
    assert sum(fault.backend == "triton" for fault in FAULTS.values()) >= 4
    assert sum(fault.backend == "numba" for fault in FAULTS.values()) >= 4


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_line_is_in_the_source_exactly_once_and_what_replaces_it_compiles(fault):
    path, source = rewritten(fault.module, fault.line, fault.replacement)
    compile(source, str(path), "exec")
    assert source != path.read_text()


def test_a_line_that_is_not_there_or_is_there_twice_is_an_error():
    with pytest.raises(RuntimeError, match=r"scheduler\.py has the line 'no such line' 0 times"):
        rewritten("tinycb.scheduling.scheduler", "no such line", "pass")
    with pytest.raises(RuntimeError, match="times, and a fault needs it once"):
        rewritten("tinycb.scheduling.scheduler", "return False", "return True")


def test_a_fault_in_python_is_in_force_inside_the_block_only():
    before, classes = Scheduler.update.__code__, (Scheduler, BlockPool)
    with planted("double_free") as fault:
        assert active() == fault.name == "double_free"
        assert Scheduler.update.__code__ is not before
        assert (sys.modules["tinycb.scheduling"].Scheduler, BlockPool) == classes
        with (
            pytest.raises(RuntimeError, match="double_free is planted already"),
            planted("hash_without_compare"),
        ):
            pass
    assert active() is None
    assert Scheduler.update.__code__ is before
    theorem_of(fault).prove("chunked", max_examples=5)


def test_a_fault_in_a_kernel_reaches_functions_that_were_imported_before_and_goes_away():
    fault = FAULTS["top_left_causal"]
    subject, theorem, scope = subject_of(fault), theorem_of(fault), scope_of(fault)
    theorem.prove(subject, scope, max_examples=3)
    modules = {name: module for name, module in sys.modules.items() if name.startswith("tinycb_kernels")}
    with planted("top_left_causal"), pytest.raises(Counterexample):
        theorem.prove(subject, scope)
    assert modules == {name: m for name, m in sys.modules.items() if name.startswith("tinycb_kernels")}
    theorem.prove(subject, scope, max_examples=3)


def test_what_was_compiled_for_a_fault_is_not_used_without_it():
    """Numba keeps compiled code on disk, and not with these faults in it."""
    q, cache = torch.randn(1, 2, 16), torch.randn(3, 4, 1, 16)
    table = torch.tensor([[0, 1]], dtype=torch.int32)
    starts, lens = torch.tensor([0, 1], dtype=torch.int32), torch.tensor([6], dtype=torch.int32)

    def run():
        return paged_attention(q, cache, cache, table, starts, lens, backend="numba")

    right = run()
    with planted("last_block_forgotten"):
        assert not torch.allclose(run(), right)
    assert torch.equal(run(), right)


def test_a_block_that_raises_leaves_nothing_planted():
    before = BlockPool.lookup.__code__
    with pytest.raises(ZeroDivisionError), planted("hash_without_compare"):
        raise ZeroDivisionError
    assert BlockPool.lookup.__code__ is before
    with pytest.raises(KeyError, match="no_such_fault"), planted("no_such_fault"):
        pass
