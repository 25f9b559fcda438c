"""Is this call possible? Every answer of "no" is a ValueError that names the argument.

Two kinds of question. Shapes, dtypes and devices are known on the host and always asked. What the index
tensors contain must be read back from the device, so those checks (`check_offsets` and below) are what
`validate=False` leaves out.

It changes nothing and copies nothing but index tensors. Read next: backends.py.
"""

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from .backends import choose_backend

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_DIM = 256


def check_tensor(
    name: str,
    tensor: Tensor,
    shape: Sequence[int | None],
    dtypes: Sequence[torch.dtype],
    device: torch.device,
) -> None:
    """One tensor's rank, sizes (None: any), dtype, device and layout, and that it asks for no gradient."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name}: got {type(tensor).__name__}, expected a torch.Tensor")
    fits = tensor.dim() == len(shape)
    for size, want in zip(tensor.shape, shape, strict=False):
        fits = fits and (want is None or size == want)
    if not fits:
        wanted = "(" + ", ".join("*" if size is None else str(size) for size in shape) + ")"
        raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, expected {wanted}")
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name}: got {tensor.dtype}, expected {' or '.join(map(str, dtypes))}")
    if tensor.device != device:
        raise ValueError(f"{name}: on {tensor.device}, expected {device}, where the first argument is")
    if tensor.layout is not torch.strided:
        raise ValueError(f"{name}: layout is {tensor.layout}, expected a dense tensor")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: requires grad, and these kernels have no backward; use torch.no_grad()")


def check_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    names: tuple[str, str],
    leading: int,
    scale: float | None,
    backend: str,
    out: Tensor | None,
) -> tuple[float, str, Tensor]:
    """What `varlen_attention` and `paged_attention` ask alike; returns the scale, the backend and `out`.

    names, leading: of k and v, and how many sizes they have before (KH, D).
    """
    check_query(q)
    check_keys(q, k, v, names, leading)
    return check_scale(scale, q.shape[2]), choose_backend(backend, q.device), check_out(out, q)


def check_query(q: Tensor) -> None:
    """q is (T, H, D), floating point, with D at most 256."""
    if not isinstance(q, Tensor):
        raise ValueError(f"q: got {type(q).__name__}, expected a torch.Tensor")
    check_tensor("q", q, (None, None, None), FLOATS, q.device)
    check_heads_and_dim("q", q)


def check_heads_and_dim(name: str, tensor: Tensor) -> None:
    """The last two sizes, heads and head dim, are ones that a kernel can be built for."""
    heads, head_dim = tensor.shape[-2:]
    if heads < 1:
        raise ValueError(f"{name}: has {heads} heads, expected at least 1")
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(f"{name}: head dim is {head_dim}, expected 1 to {MAX_HEAD_DIM}")


def check_keys(q: Tensor, k: Tensor, v: Tensor, names: tuple[str, str], leading: int) -> None:
    """k and v are (S, KH, D) or (NB, BS, KH, D) in q's dtype, of equal shape, and KH divides H."""
    shape: list[int | None] = [None] * (leading + 1)
    check_tensor(names[0], k, [*shape, q.shape[2]], [q.dtype], q.device)
    heads, kv_heads = q.shape[1], k.shape[-2]
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"{names[0]}: has {kv_heads} KV heads, expected a divisor of q's {heads} heads")
    if leading == 2 and k.shape[1] < 1:
        raise ValueError(f"{names[0]}: got shape {tuple(k.shape)}, expected a block size of at least 1")
    check_tensor(names[1], v, tuple(k.shape), [q.dtype], q.device)


def check_scale(scale: float | None, head_dim: int) -> float:
    """The softmax scale as a float; None stands for 1/sqrt(D)."""
    if scale is None:
        return head_dim**-0.5
    if not isinstance(scale, int | float) or not abs(scale) <= sys.float_info.max:  # NaN is not, either
        raise ValueError(f"scale: got {scale!r}, expected a finite number or None for 1/sqrt(D)")
    return float(scale)


def check_index(name: str, tensor: Tensor, shape: Sequence[int | None], device: torch.device) -> None:
    """An int32 tensor of offsets, lengths or block numbers."""
    check_tensor(name, tensor, shape, [torch.int32], device)


def check_start_offsets(name: str, offsets: Tensor, device: torch.device) -> int:
    """An (R+1,) offset tensor; returns R."""
    check_index(name, offsets, (None,), device)
    if len(offsets) < 1:
        raise ValueError(f"{name}: is empty, expected R+1 offsets that start with 0")
    return len(offsets) - 1


def check_writable(name: str, tensor: Tensor) -> None:
    """No two elements of a tensor that is written to may share memory."""
    if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise ValueError(
            f"{name}: strides {tensor.stride()} put several elements in one place, and it is written"
        )


def check_out(out: Tensor | None, q: Tensor) -> Tensor:
    """The tensor to write into: `out` if it can stand for the result, a new contiguous one if it is None."""
    if out is None:
        return torch.empty(q.shape, dtype=q.dtype, device=q.device)
    check_tensor("out", out, tuple(q.shape), [q.dtype], q.device)
    check_writable("out", out)
    return out


# ---- below here the contents of index tensors are read: `validate=True` only -------------------------------


def check_offsets(name: str, offsets: Tensor, total: int, total_name: str) -> None:
    """Offsets start at 0, never fall, and end at `total`."""
    values = offsets.tolist()
    if values[0] != 0:
        raise ValueError(f"{name}[0]: is {values[0]}, expected 0")
    for i in range(1, len(values)):
        if values[i] < values[i - 1]:
            raise ValueError(
                f"{name}[{i}]: is {values[i]}, expected {values[i - 1]} or more: offsets never fall"
            )
    if values[-1] != total:
        raise ValueError(f"{name}[{len(values) - 1}]: ends at {values[-1]}, expected {total} = {total_name}")


def check_seq_lens(seq_lens: Tensor, max_blocks: int, block_size: int) -> None:
    """Every length is 0 or more and fits in a row of the block table."""
    limit = max_blocks * block_size
    for r, length in enumerate(seq_lens.tolist()):
        if not 0 <= length <= limit:
            raise ValueError(
                f"seq_lens[{r}]: is {length}, expected 0 to {limit} = {max_blocks} blocks of {block_size}"
            )


def check_block_table(block_table: Tensor, seq_lens: Tensor, num_blocks: int, block_size: int) -> None:
    """Entries that a sequence uses are block numbers; the ones after them may hold anything."""
    columns = torch.arange(block_table.shape[1], device=block_table.device)  # (MB,)
    used = columns * block_size < seq_lens[:, None]  # (R, MB)
    wrong = used & ((block_table < 0) | (block_table >= num_blocks))  # (R, MB)
    if wrong.any():
        r, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"block_table[{r}, {column}]: is {block_table[r, column]}, expected a block number from 0 to "
            f"{num_blocks - 1}: seq_lens[{r}] is {seq_lens[r]}"
        )


def check_slots(slot_mapping: Tensor, num_slots: int) -> None:
    """Slots that are not negative exist, and no two tokens write the same one."""
    slots, tokens = slot_mapping.sort(stable=True)
    if len(slots) and slots[-1] >= num_slots:
        raise ValueError(
            f"slot_mapping[{tokens[-1]}]: is {slots[-1]}, expected less than {num_slots} = NB * BS"
        )
    twice = (slots[1:] == slots[:-1]) & (slots[1:] >= 0)
    if twice.any():
        i = int(twice.nonzero()[0])
        raise ValueError(
            f"slot_mapping[{tokens[i + 1]}]: is {slots[i + 1]}, expected a slot of its own: "
            f"slot_mapping[{tokens[i]}] is the same"
        )
