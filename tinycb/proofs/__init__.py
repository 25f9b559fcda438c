"""The project's claims as theorems that Hypothesis attacks: on our code, and on yours.

    import pytest
    from tinycb.proofs import theorems_about

    @pytest.mark.parametrize("theorem", theorems_about("paged"), ids=str)
    def test_my_kernel(theorem):
        theorem.prove(my_kernel)

The same from a shell, in a process of its own: `tinycb check paged my_module:my_kernel`. Importing this loads
neither torch nor an engine; the theorems do, when they are asked for.

Read next: `theorem.py`, then `strategies.py`, `oracle.py` and `attention.py`.
"""

from tinycb.proofs.oracle import attend_alone, visible_keys
from tinycb.proofs.registry import KINDS, find_theorem, theorems_about
from tinycb.proofs.strategies import (
    CacheWrite,
    KVLayout,
    RaggedBatch,
    Varied,
    cache_writes,
    kv_layouts,
    ragged_batches,
)
from tinycb.proofs.theorem import CannotTry, Counterexample, Scope, Theorem, Verdict

__all__ = [
    "KINDS",
    "CacheWrite",
    "CannotTry",
    "Counterexample",
    "KVLayout",
    "RaggedBatch",
    "Scope",
    "Theorem",
    "Varied",
    "Verdict",
    "attend_alone",
    "cache_writes",
    "find_theorem",
    "kv_layouts",
    "ragged_batches",
    "theorems_about",
    "visible_keys",
]
