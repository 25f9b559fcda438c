"""The project's claims as theorems that Hypothesis attacks: on our code, and on yours.

import pytest
from tinycb.proofs import theorems_about

@pytest.mark.parametrize("theorem", theorems_about("paged"), ids=str)
def test_my_kernel(theorem):
    theorem.prove(my_kernel)
"""

from tinycb.proofs.theorem import Counterexample, Scope, Theorem, Verdict

__all__ = ["Counterexample", "Scope", "Theorem", "Verdict"]
