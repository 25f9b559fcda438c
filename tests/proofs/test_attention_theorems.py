"""Every theorem about attention and the cache write, on every backend; what the mask path cannot do; and that
faulty kernels are found out, each by the theorem that names its fault.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import settings

from tests.proofs import faulty_kernels
from tinycb.proofs import Counterexample, Scope, find_theorem, theorems_about
from tinycb.proofs.draw import arguments, draw
from tinycb.proofs.launch import attend, same_bits
from tinycb.proofs.strategies import RaggedBatch, ragged_batches
from tinycb.proofs.theorem import Theorem
from tinycb.proofs.worker import Worker
from tinycb_kernels import causal_mask, mask_attention, paged_attention, varlen_attention, write_kv
from tinycb_kernels.backends import has_module, triton_is_interpreted

KERNELS = {"varlen": varlen_attention, "paged": paged_attention, "write_kv": write_kv}
HEADS = ((1, 1), (4, 4), (8, 2), (6, 2), (5, 1), (14, 2), (20, 1))
HALVES = ("bfloat16", "float16")
TIMES = 10 if settings.get_current_profile_name() == "thorough" else 1
# Theorems worth a second look in 16 bits: the others are about bits that do not depend on the type.
IN_HALVES = {
    "agrees_with_one_request_alone",
    "a_query_sees_exactly_its_own_past",
    "gqa_heads_map_to_their_group",
    "huge_scores_are_right",
    "any_strides_give_the_same",
    "neighbours_change_no_bit",
    "memory_of_nobody_is_never_read",
}


@pytest.fixture(autouse=True)
def one_thread_for_torch(request):
    """Tensors this small are not worth waking a thread for, which takes long on a busy machine."""
    threads = torch.get_num_threads()
    if "numba" not in request.node.name:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def need(backend: str) -> None:
    if backend == "numba" and not has_module("numba"):
        pytest.skip("numba is not installed")
    if backend == "triton" and not has_module("triton"):
        pytest.skip("triton is not installed")
    if backend == "triton" and not torch.cuda.is_available() and not triton_is_interpreted():
        pytest.skip("no GPU, and TRITON_INTERPRET=1 came too late")


def mask_path(q, k, v, cu_seqlens_q, cu_seqlens_k, scale):
    """Path 1 from end to end, called as path 2 is."""
    return mask_attention(q, k, v, causal_mask(cu_seqlens_q, cu_seqlens_k), scale)


def about(kind: str, exact: bool = False) -> list[Theorem]:
    """The theorems to try in this process: with the wrong kernel, 32-bit offsets would end it."""
    return [theorem for theorem in theorems_about(kind, exact=exact) if theorem.name != "offsets_are_64_bit"]


def in_halves() -> list[Theorem]:
    return [theorem for theorem in about("varlen") + about("paged") if theorem.name in IN_HALVES]


def in_a_worker(theorem: Theorem, worker: Worker) -> Theorem:
    return replace(theorem, check=lambda _, example: worker.check(theorem.name, example))


@pytest.mark.parametrize("theorem", theorems_about("causal_mask"), ids=str)
def test_causal_mask(theorem):
    theorem.prove(causal_mask)


@pytest.mark.parametrize("theorem", about("mask"), ids=str)
def test_mask_attention(theorem):
    theorem.prove(mask_attention, Scope(heads=HEADS))


def test_the_mask_path_agrees_end_to_end():
    for theorem in about("varlen")[:2]:
        theorem.prove(mask_path, Scope(heads=HEADS))


@pytest.mark.parametrize("theorem", about("varlen", exact=True) + about("paged", exact=True), ids=str)
def test_numba_bit_for_bit(theorem):
    need("numba")
    theorem.prove(partial(KERNELS[theorem.about], backend="numba"), Scope(heads=HEADS))


@pytest.mark.parametrize("theorem", about("varlen") + about("paged"), ids=str)
def test_torch(theorem):
    theorem.prove(partial(KERNELS[theorem.about], backend="torch"), Scope(heads=HEADS))


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("theorem", in_halves(), ids=str)
def test_16_bits(theorem, backend):
    need(backend)
    subject = partial(KERNELS[theorem.about], backend=backend)
    theorem.prove(subject, Scope(HALVES, HEADS), max_examples=20 * TIMES)


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:All-NaN slice")  # of planted NaNs
@pytest.mark.parametrize("theorem", about("varlen") + about("paged"), ids=str)
def test_triton(theorem):
    """Interpreted without a GPU: a few small examples, for a program costs milliseconds."""
    need("triton")
    subject = partial(KERNELS[theorem.about], backend="triton")
    if torch.cuda.is_available():
        theorem.prove(subject, Scope(("float32", *HALVES), HEADS, "cuda", 3))
    else:
        heads = ((1, 1), (3, 1), (4, 2), (20, 1))
        theorem.prove(subject, Scope(("float32", *HALVES), heads, cost=1), max_examples=6 * TIMES)


@pytest.mark.parametrize("backend", ["numba", "torch", "triton"])
@pytest.mark.parametrize("theorem", about("write_kv"), ids=str)
def test_write_kv(theorem, backend):
    need(backend)
    few = backend == "triton" and not torch.cuda.is_available()
    device = "cuda" if backend == "triton" and not few else "cpu"
    scope = Scope(("float32", *HALVES), HEADS, device, 1 if few else 2)
    theorem.prove(partial(write_kv, backend=backend), scope, max_examples=10 * TIMES if few else None)


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("backend", ["numba", "torch", "triton"])
def test_offsets_past_2_31(kind, backend):
    """In a process of its own, which a 32-bit offset may end, and with memory that is promised, not used."""
    need(backend)
    theorem = find_theorem(kind, "offsets_are_64_bit")
    gpu = backend == "triton" and torch.cuda.is_available()
    scope = Scope(device="cuda" if gpu else "cpu", cost=1)
    with Worker(f"{faulty_kernels.__file__}:ours.{backend}_{kind}", kind, gpu=gpu) as worker:
        verdict = in_a_worker(theorem, worker).verdict(None, scope)
    if verdict.untried:
        pytest.skip(verdict.untried)
    assert verdict.holds, verdict.failure


def test_offsets_of_32_bits_are_found_out():
    subject = f"{faulty_kernels.__file__}:paged.wraps_at_32_bits"
    theorem = find_theorem("paged", "offsets_are_64_bit")
    with Worker(subject, "paged") as worker:
        verdict = in_a_worker(theorem, worker).verdict(None)
    if verdict.untried:
        pytest.skip(verdict.untried)
    assert "past 2^31 numbers" in str(verdict.failure)


def numba_varlen_into_a_strided_out(q, *tensors):
    out = torch.full((len(q), 2 * q.shape[1], q.shape[2]), torch.nan, dtype=q.dtype)[:, ::2]
    return varlen_attention(q, *tensors, backend="numba", out=out)


def test_numba_varlen_and_paged_give_the_same_bits():
    need("numba")

    def check(_, batch: RaggedBatch) -> None:
        drawn = draw(batch)
        packed, paged = (
            attend(partial(KERNELS[kind], backend="numba"), drawn, arguments(kind, drawn))
            for kind in ("varlen", "paged")
        )
        if not same_bits(packed, paged).all():
            raise Counterexample("varlen and paged differ")

    Theorem(
        "varlen_is_paged", "paged", "Equal bits.", lambda scope: ragged_batches(scope, paged=True), check
    ).prove(None, Scope(heads=HEADS))


@pytest.mark.parametrize("theorem", about("varlen")[:2], ids=str)
def test_out_with_strides(theorem):
    need("numba")
    theorem.prove(numba_varlen_into_a_strided_out, max_examples=20 * TIMES)


def test_the_mask_path_lets_nan_through():
    """Its limit, as it is: a hidden value has weight 0, and 0 · NaN is NaN. Varlen has no such weight."""
    drawn = draw(RaggedBatch(((1, 2), (1, 2))))
    drawn.requests[1].v[0] = torch.nan
    mask = attend(mask_attention, drawn, arguments("mask", drawn))
    varlen = attend(varlen_attention, drawn, arguments("varlen", drawn))
    assert mask[0].isnan().all()
    assert not varlen[0].isnan().any()
    with pytest.raises(Counterexample, match="all requests but A got nan"):
        find_theorem("varlen", "neighbours_change_no_bit").prove(mask_path)


@pytest.mark.parametrize("fault", [f for f in faulty_kernels.PAGED_FAULTS if f != "wraps_at_32_bits"])
def test_a_faulty_paged_kernel_is_found_out(fault):
    name = faulty_kernels.PAGED_FAULTS[fault]
    theorem = find_theorem("paged", name)
    verdict = theorem.verdict(getattr(faulty_kernels.paged, fault))
    assert isinstance(verdict.failure, Counterexample)
    assert len(getattr(verdict.example, "batch", verdict.example).rows) <= 2
    assert "request" in verdict.failure.picture


@pytest.mark.parametrize("fault", faulty_kernels.WRITE_FAULTS)
def test_a_faulty_cache_write_is_found_out(fault):
    name = faulty_kernels.WRITE_FAULTS[fault]
    theorem = find_theorem("write_kv", name)
    verdict = theorem.verdict(getattr(faulty_kernels.write, fault))
    assert isinstance(verdict.failure, Counterexample)
    assert "slot_mapping" in verdict.failure.picture


@pytest.mark.parametrize("kind", ["paged", "write_kv"])
def test_the_kernels_without_a_fault_pass(kind):
    right = {"paged": faulty_kernels.paged, "write_kv": faulty_kernels.write}[kind].right
    for theorem in about(kind):
        theorem.prove(right, max_examples=10)
