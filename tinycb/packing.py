"""From the rows a scheduler chose to the arrays a kernel gets: one packed, ragged batch.

Three requests, `block_size` 4. A runs 4 prompt tokens, B decodes one at position 6, C runs a chunk of 3
after 2 it has computed already:

    token_ids        a0 a1 a2 a3   b6   c2 c3 c4        (T,)    one row of tokens, no padding
    positions         0  1  2  3    6    2  3  4        (T,)    each request counts from its own start
    query_start_loc   0             4    5        8     (R+1,)  where each request begins in T
    seq_lens          4             7    5              (R,)    how much each may look back on
    block_table      [3]        [0 5]  [1 2]            (R, MB) which blocks hold its past; -1 is padding
    slot_mapping     12 13 14 15   22    6  7  8        (T,)    block * block_size + offset, where K and V go

Numpy only, so that the screen can rebuild the arrays of any recorded step without torch.
Does not decide who runs (`scheduling/`) and does not run anything (`executors.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["PackedBatch", "Row", "pack"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(slots=True)
class Row:
    """One request's share of a step: positions `start … start + num_tokens - 1` of `token_ids`.

    token_ids: all tokens the request has, prompt and output. block_table: its physical blocks, in order.
    samples: the step reaches the request's last token, so the next one is drawn from its logits.
    num_tokens 0 is an idle slot: a finished request that a static batch still carries.
    """

    request_id: str
    token_ids: Sequence[int]
    start: int
    num_tokens: int
    block_table: Sequence[int]
    samples: bool = True


@dataclass(slots=True)
class PackedBatch:
    """One step's arrays; the module's docstring draws them. `sample_indices` are the rows of T to sample.

    sample_request_ids names the request of each. num_padded counts the tokens of T that belong to nobody:
    the left padding of a static batch. Their slot is -1 and their outputs are dropped.
    """

    request_ids: list[str]
    token_ids: Int64Array  # (T,)
    positions: Int64Array  # (T,)
    query_start_loc: Int32Array  # (R+1,)
    seq_lens: Int32Array  # (R,)
    slot_mapping: Int64Array  # (T,)
    block_table: Int32Array  # (R, MB)
    sample_indices: Int64Array  # (number of sampling rows,)
    sample_request_ids: list[str]
    num_padded: int = 0


def pack(rows: Sequence[Row], block_size: int, *, pad: bool = False) -> PackedBatch:
    """Lay the rows side by side. With `pad`, fill every row on the left to the length of the longest.

    A padded row keeps its `seq_lens`, so with the bottom-right causal rule its real tokens see what they
    would see alone, and the padding before them is computed and dropped. An idle slot has `seq_lens` 0.
    """
    width = max((row.num_tokens for row in rows), default=0) if pad else 0
    token_ids: list[int] = []
    lengths = [max(row.num_tokens, width) for row in rows]
    for row, length in zip(rows, lengths, strict=True):
        token_ids.extend([0] * (length - row.num_tokens))
        token_ids.extend(row.token_ids[row.start : row.start + row.num_tokens])

    query_start_loc = np.zeros(len(rows) + 1, dtype=np.int32)  # (R+1,)
    np.cumsum(lengths, out=query_start_loc[1:])
    starts = np.array([row.start for row in rows], dtype=np.int64)  # (R,)
    nums = np.array([row.num_tokens for row in rows], dtype=np.int64)  # (R,)
    seq_lens = np.where(nums > 0, starts + nums, 0).astype(np.int32)  # (R,)

    # The last token of a row sits at its position start + num - 1; count back from there.
    row_of = np.repeat(np.arange(len(rows)), lengths)  # (T,)
    from_end = query_start_loc[1:][row_of] - 1 - np.arange(len(token_ids))  # (T,)
    positions = starts[row_of] + nums[row_of] - 1 - from_end  # (T,)
    is_pad = from_end >= nums[row_of]  # (T,)
    positions[is_pad] = 0

    max_blocks = max((len(row.block_table) for row in rows), default=0)
    block_table = np.full((len(rows), max_blocks), -1, dtype=np.int32)  # (R, MB)
    for r, row in enumerate(rows):
        block_table[r, : len(row.block_table)] = row.block_table

    slot_mapping = np.full(len(token_ids), -1, dtype=np.int64)  # (T,)
    real = ~is_pad
    logical, offset = positions[real] // block_size, positions[real] % block_size
    slot_mapping[real] = block_table[row_of[real], logical].astype(np.int64) * block_size + offset

    sampling = [r for r, row in enumerate(rows) if row.samples and row.num_tokens > 0]
    return PackedBatch(
        request_ids=[row.request_id for row in rows],
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=positions,
        query_start_loc=query_start_loc,
        seq_lens=seq_lens,
        slot_mapping=slot_mapping,
        block_table=block_table,
        sample_indices=query_start_loc[1:][sampling].astype(np.int64) - 1,
        sample_request_ids=[rows[r].request_id for r in sampling],
        num_padded=int(is_pad.sum()),
    )
