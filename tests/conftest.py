"""Settings that must be in force before anything is imported.

Without a GPU the Triton kernels run in Triton's interpreter, which has to be chosen before the first
`import triton`, and transformers imports it. Processes that share the tests (`make test`) keep their compiled
loops apart: two that compile into one of Numba's caches at once can each find the other's code in it.
"""

import os
from pathlib import Path

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

worker = os.environ.get("PYTEST_XDIST_WORKER")
if worker:
    cache = Path(__file__).parent.parent / ".pytest_cache" / f"numba-{worker}"
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache))

settings.register_profile("default", deadline=None)  # two busy cores make times meaningless
settings.register_profile("thorough", deadline=None, max_examples=1000)  # ten times as many, of theorems too
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
