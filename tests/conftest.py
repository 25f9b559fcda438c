"""Settings that must be in force before anything is imported.

Without a GPU the Triton kernels run in Triton's interpreter, which has to be chosen before the first
`import triton`, and transformers imports it.
"""

import os

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("default", deadline=None)  # two busy cores make times meaningless
settings.register_profile("thorough", deadline=None, max_examples=1000)  # ten times as many, of theorems too
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
