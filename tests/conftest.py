"""What all tests share: torch loaded once, one thread for each worker, and a small heap to collect."""

import gc

import torch

# Two workers with two threads each on two cores wait for each other longer than these toy sizes take to compute.
torch.set_num_threads(1)
# Torch brings half a million objects that never die; each full collection would walk them again.
gc.freeze()
