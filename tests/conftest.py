"""What all tests share: torch loaded once, and kept out of the garbage collector's way."""

import gc

import torch

assert torch is not None
# Torch brings half a million objects that never die; each full collection would walk them again.
gc.freeze()
