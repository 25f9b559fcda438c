"""Write a paged attention that passes the theorems.

It is the call of chapter 7, in plain torch, as short or as clumsy as you like: a loop over requests and a
loop over their rows are fine. What it must get right:

- Request `r` has the rows `query_start_loc[r]` to `query_start_loc[r + 1] - 1` of `q`. They are its newest
  tokens, and with them it has `seq_lens[r]` tokens in all: the last row stands at its last position.
- The key of position `p` lies in block `block_table[r, p // block_size]`, at the offset `p % block_size`.
- A row sees the positions up to its own. With more rows than tokens, the first rows stand before position
  zero and see nothing; their result is zero.
- Query head `h` reads keys and values of KV head `h // group`, where `group` is `H // KH`.
- Slots that hold no token may hold anything, NaN too.

The check asks a few examples of each theorem. For all of them, and for a picture of what went wrong, give
your file to the command itself: `tinycb check paged tinycb-exercises/11_kernel.py:paged_attention`.
"""

from torch import Tensor


def paged_attention(
    q: Tensor,  # (T, H, D)
    k_cache: Tensor,  # (NB, BS, KH, D)
    v_cache: Tensor,  # (NB, BS, KH, D)
    block_table: Tensor,  # (R, MB)
    query_start_loc: Tensor,  # (R + 1,)
    seq_lens: Tensor,  # (R,)
    scale: float,
) -> Tensor:
    """The result of every row, (T, H, D)."""
    raise NotImplementedError("write the body of paged_attention")
