"""What all tests share: torch loaded once, one thread for each worker, a small heap, and draws without a deadline."""

import gc
import os

import torch
from hypothesis import settings

# Two workers with two threads each on two cores wait for each other longer than these toy sizes take to compute.
torch.set_num_threads(1)
# Torch brings half a million objects that never die; each full collection would walk them again.
gc.freeze()
# A deadline is a timed assert; on a busy machine it fails without a fault. CI draws the same values each time.
settings.register_profile("explorer", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("explorer")
