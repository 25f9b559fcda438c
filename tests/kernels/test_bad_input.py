"""What cannot be right is refused before anything runs, by a ValueError that names the argument."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tinycb_kernels import (
    causal_mask,
    mask_attention,
    paged_attention,
    plan_paged,
    varlen_attention,
    write_kv,
)

from .batches import Backend

Arguments = dict[str, Any]


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def good(function: Callable) -> Arguments:
    """Two requests, (2, 5) and (1, 3); H 4, KH 2, D 8; blocks of 2."""
    q, k, cache = torch.randn(3, 4, 8), torch.randn(8, 2, 8), torch.randn(6, 2, 2, 8)
    if function is mask_attention:
        return {"q": q, "k": k, "v": k.clone(), "mask": torch.ones(3, 8, dtype=torch.bool)}
    if function is varlen_attention:
        offsets = {"cu_seqlens_q": int32(0, 2, 3), "cu_seqlens_k": int32(0, 5, 8)}
        return {"q": q, "k": k, "v": k.clone(), **offsets, "backend": "torch"}
    if function is write_kv:
        k = torch.randn(3, 2, 8)
        slots = torch.tensor([0, -1, 11])
        caches = {"k_cache": cache, "v_cache": cache.clone()}
        return {"k": k, "v": k.clone(), **caches, "slot_mapping": slots, "backend": "torch"}
    table = torch.tensor([[4, 1, 5], [0, 2, -1]], dtype=torch.int32)
    return {
        "q": q, "k_cache": cache, "v_cache": cache.clone(), "block_table": table,
        "query_start_loc": int32(0, 2, 3), "seq_lens": int32(5, 3), "backend": "torch",
    }  # fmt: skip


FUNCTIONS = (mask_attention, varlen_attention, paged_attention, write_kv)
HOST = [  # (function, argument, what is put in its place): known without reading a device
    (mask_attention, "mask", torch.ones(3, 7, dtype=torch.bool)),
    (mask_attention, "mask", torch.ones(3, 8)),
    (mask_attention, "v", torch.randn(8, 2, 9)),
    (varlen_attention, "q", torch.randn(3, 32)),
    (varlen_attention, "q", torch.randn(3, 4, 8).double()),
    (varlen_attention, "q", torch.randint(9, (3, 4, 8))),
    (varlen_attention, "q", torch.randn(3, 4, 257)),
    (varlen_attention, "q", torch.randn(3, 0, 8)),
    (varlen_attention, "q", [[1.0]]),
    (varlen_attention, "q", torch.randn(3, 4, 8, requires_grad=True)),
    (varlen_attention, "q", torch.randn(3, 4, 8).to_sparse()),
    (mask_attention, "mask", torch.ones(3, 8, dtype=torch.bool).to_sparse()),
    (varlen_attention, "k", torch.randn(8, 3, 8)),
    (varlen_attention, "k", torch.randn(8, 0, 8)),
    (varlen_attention, "k", torch.randn(8, 2, 16)),
    (varlen_attention, "k", torch.randn(8, 2, 8).half()),
    (varlen_attention, "k", torch.randn(8, 2, 8, device="meta")),
    (varlen_attention, "v", torch.randn(7, 2, 8)),
    (varlen_attention, "v", torch.randn(8, 2, 8).bfloat16()),
    (varlen_attention, "cu_seqlens_q", torch.tensor([0, 2, 3])),
    (varlen_attention, "cu_seqlens_q", int32()),
    (varlen_attention, "cu_seqlens_q", None),
    (varlen_attention, "cu_seqlens_k", int32(0, 8)),
    (varlen_attention, "cu_seqlens_k", torch.tensor([0.0, 5.0, 8.0])),
    (varlen_attention, "scale", float("nan")),
    (varlen_attention, "scale", float("inf")),
    (varlen_attention, "scale", "large"),
    (varlen_attention, "scale", 10**400),
    (varlen_attention, "out", torch.empty(3, 4, 9)),
    (varlen_attention, "out", torch.empty(3, 4, 8).half()),
    (varlen_attention, "out", torch.empty(1, 1, 8).expand(3, 4, 8)),
    (varlen_attention, "backend", "cuda"),
    (paged_attention, "k_cache", torch.randn(6, 2, 2, 16)),
    (paged_attention, "k_cache", torch.randn(12, 2, 8)),
    (paged_attention, "k_cache", torch.randn(6, 0, 2, 8)),
    (paged_attention, "v_cache", torch.randn(5, 2, 2, 8)),
    (paged_attention, "v_cache", torch.randn(6, 2, 2, 8).half()),
    (paged_attention, "block_table", torch.tensor([[4, 1, 5], [0, 2, -1]])),
    (paged_attention, "block_table", int32(4, 1, 5)),
    (paged_attention, "block_table", torch.zeros(3, 3, dtype=torch.int32)),
    (paged_attention, "query_start_loc", torch.tensor([0, 2, 3])),
    (paged_attention, "seq_lens", int32(5, 3, 1)),
    (paged_attention, "seq_lens", torch.tensor([5, 3])),
    (paged_attention, "scale", float("-inf")),
    (paged_attention, "out", torch.empty(4, 4, 8)),
    (write_kv, "k", torch.randn(3, 16)),
    (write_kv, "k", [1.0]),
    (write_kv, "v", torch.randn(2, 2, 8)),
    (write_kv, "v", torch.randn(3, 2, 8).half()),
    (write_kv, "k_cache", torch.randn(6, 2, 3, 8)),
    (write_kv, "k_cache", torch.randn(6, 2, 2, 8).bfloat16()),
    (write_kv, "k_cache", torch.randn(1, 2, 2, 8).expand(6, 2, 2, 8)),
    (write_kv, "v_cache", torch.randn(6, 3, 2, 8)),
    (write_kv, "slot_mapping", torch.tensor([0, 1])),
    (write_kv, "slot_mapping", int32(0, -1, 11)),
]
DEVICE = [  # what only the values of an index tensor tell
    (varlen_attention, "cu_seqlens_q", int32(1, 2, 3)),
    (varlen_attention, "cu_seqlens_q", int32(0, 4, 3)),
    (varlen_attention, "cu_seqlens_q", int32(0, 2, 4)),
    (varlen_attention, "cu_seqlens_q", int32(0, 2, 2)),
    (varlen_attention, "cu_seqlens_k", int32(-1, 5, 8)),
    (varlen_attention, "cu_seqlens_k", int32(0, 9, 8)),
    (varlen_attention, "cu_seqlens_k", int32(0, 5, 7)),
    (paged_attention, "query_start_loc", int32(0, 3, 2)),
    (paged_attention, "query_start_loc", int32(0, 2, 4)),
    (paged_attention, "seq_lens", int32(7, 3)),
    (paged_attention, "seq_lens", int32(5, -1)),
    (paged_attention, "block_table", torch.tensor([[4, 1, 6], [0, 2, -1]], dtype=torch.int32)),
    (paged_attention, "block_table", torch.tensor([[4, 1, 5], [0, -1, -1]], dtype=torch.int32)),
    (write_kv, "slot_mapping", torch.tensor([0, 1, 12])),
    (write_kv, "slot_mapping", torch.tensor([3, 1, 3])),
]


def case_id(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.tolist()) if value.dtype == torch.int32 else f"{value.dtype}{list(value.shape)}"
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize("function", FUNCTIONS, ids=case_id)
def test_good_input_is_accepted(function: Callable) -> None:
    function(**good(function))


@pytest.mark.parametrize(("function", "argument", "value"), HOST + DEVICE, ids=case_id)
def test_bad_input_is_refused(function: Callable, argument: str, value: Any) -> None:
    arguments = good(function)
    before = {name: x.clone() for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    bad = arguments | {argument: value}
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        function(**bad)
    for name, tensor in before.items():
        assert torch.equal(arguments[name], tensor), f"{name} was changed before the error"


@pytest.mark.parametrize(
    ("function", "argument", "value"), [case for case in HOST if case[0] is not mask_attention], ids=case_id
)
def test_validate_false_keeps_the_checks_that_cost_nothing(
    function: Callable, argument: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        function(**good(function) | {argument: value, "validate": False})


def test_the_message_says_what_would_be_right() -> None:
    arguments = good(paged_attention)
    arguments["seq_lens"] = int32(5, 7)
    with pytest.raises(ValueError, match=r"seq_lens\[1\]: is 7, expected 0 to 6 = 3 blocks of 2"):
        paged_attention(**arguments)
    arguments = good(write_kv)
    arguments["slot_mapping"] = torch.tensor([3, 1, 3])
    with pytest.raises(ValueError, match=r"slot_mapping\[2\]: is 3, .* slot_mapping\[0\] is the same"):
        write_kv(**arguments)


def test_gradients_are_refused_only_while_they_are_recorded(backend: Backend) -> None:
    for function in (varlen_attention, paged_attention):
        arguments = good(function) | {"backend": backend.name}
        for name, tensor in arguments.items():
            if isinstance(tensor, torch.Tensor):
                arguments[name] = tensor.to(backend.device).requires_grad_(tensor.is_floating_point())
        with torch.no_grad():
            assert not function(**arguments).requires_grad


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_heads": 2}, r"made for H // KH = 1, expected 2 as in the call"),
        ({"head_dim": 16}, r"made for D = 16, expected 8"),
        ({"dtype": torch.float16}, r"made for dtype = torch.float16, expected torch.float32"),
        ({"query_start_loc": [0, 2, 4]}, r"made for T = 4, expected 3"),
        ({"query_start_loc": [0, 3], "seq_lens": [5]}, r"made for R = 1, expected 2"),
        ({"seq_lens": [5, 4]}, r"made for other lengths than query_start_loc and seq_lens have"),
    ],
    ids=str,
)
def test_a_plan_for_another_call_is_refused(triton_backend: Backend, change: dict, words: str) -> None:
    arguments = good(paged_attention) | {"backend": "triton"}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            arguments[name] = value.to(triton_backend.device)
    made_for = {
        "query_start_loc": [0, 2, 3], "seq_lens": [5, 3], "num_heads": 4, "num_kv_heads": 2, "head_dim": 8,
        "dtype": torch.float32, "device": triton_backend.device,
    }  # fmt: skip
    paged_attention(**arguments, plan=plan_paged(**made_for))
    with pytest.raises(ValueError, match=f"^plan: {words}"):
        paged_attention(**arguments, plan=plan_paged(**made_for | change))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("query_start_loc", [0, 2]), ("query_start_loc", [1, 2, 3]), ("query_start_loc", [0, 3, 2]),
        ("query_start_loc", []), ("query_start_loc", [0.0, 2.0, 3.0]), ("query_start_loc", [[0, 2, 3]]),
        ("query_start_loc", torch.empty(3, device="meta")), ("seq_lens", [5, -1]), ("seq_lens", "53"),
        ("num_kv_heads", 0), ("num_kv_heads", 3), ("head_dim", 257), ("dtype", torch.float64),
    ],
    ids=case_id,
)  # fmt: skip
def test_a_plan_cannot_be_made_for_what_cannot_be(argument: str, value: Any) -> None:
    right = {
        "query_start_loc": [0, 2, 3], "seq_lens": [5, 3], "num_heads": 4, "num_kv_heads": 2, "head_dim": 8,
        "dtype": torch.float32, "device": "cpu",
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"^{argument}: "):
        plan_paged(**right | {argument: value})


def test_a_plan_of_another_kind_is_refused(triton_backend: Backend) -> None:
    arguments = {
        name: value.to(triton_backend.device) if isinstance(value, torch.Tensor) else value
        for name, value in good(paged_attention).items()
    }
    with pytest.raises(ValueError, match=r"^plan: got list, expected one from plan_paged"):
        paged_attention(**arguments | {"backend": "triton"}, plan=[1, 2])


@pytest.mark.parametrize("starts", [int32(1, 2), int32(0, 2, 1), int32()], ids=case_id)
def test_causal_mask_refuses_bad_offsets(starts: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^cu_seqlens_q"):
        causal_mask(starts, starts)
    with pytest.raises(ValueError, match=r"^cu_seqlens_k"):
        causal_mask(int32(0, 1), int32(0, 1, 2))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs two kinds of device: there is no GPU")
@pytest.mark.parametrize("argument", ["k_cache", "v_cache", "block_table", "query_start_loc", "seq_lens"])
def test_tensors_on_two_devices_are_refused(argument: str) -> None:
    arguments = good(paged_attention)
    arguments[argument] = arguments[argument].cuda()
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        paged_attention(**arguments)
