"""Activations: of one tensor or of gate and up, any shape, the dtype that comes in."""

from __future__ import annotations

import torch

from explorer.testing.expect import expect, expect_like
from explorer.testing.toy import Toy, vectors

_SHAPES = ((7,), (2, 5, 24))


def keeps_shape_and_dtype(toy: Toy) -> None:
    """one tensor, or gate and up, of any shape to come out in that shape and dtype"""
    inputs = toy.chosen.maker().inputs
    expect(inputs in (1, 2), "a forward of x, or of (gate, up)", f"{inputs} required arguments")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        activation = toy.bare(dtype=dtype)
        for shape in _SHAPES:
            given = [vectors(*shape, seed=seed).to(dtype) for seed in range(inputs)]
            expect_like(activation(*given), shape, dtype, f"the activation of {shape} in {dtype}")
