"""Norms: any leading axes, the dtype that comes in, statistics that do not overflow."""

from __future__ import annotations

import torch

from explorer.testing.expect import expect_close, expect_like
from explorer.testing.toy import DIM, Toy, vectors

_SHAPES = ((DIM,), (5, DIM), (2, 5, DIM), (2, 4, 5, DIM))
_LARGE = 300.0  # its square is beyond float16's 65504


def keeps_shape_and_dtype(toy: Toy) -> None:
    """(..., dim) of any dtype to come out as it went in, whatever the dtype of the weights"""
    for weights in (torch.float32, torch.bfloat16, torch.float16):
        norm = toy.bare(dtype=weights)
        for dtype in {weights, torch.bfloat16, torch.float16} if weights == torch.float32 else {weights}:
            for shape in _SHAPES:
                what = f"the norm of {shape} in {dtype} with weights in {weights}"
                expect_like(norm(vectors(*shape).to(dtype)), shape, dtype, what)


def float16_does_not_overflow(toy: Toy) -> None:
    """statistics in float32: |x| = 300 in float16 to give what float32 gives"""
    half, full = toy.bare(dtype=torch.float16), toy.bare()
    full.load_state_dict(half.state_dict())
    for x in (torch.full((2, DIM), _LARGE), _LARGE * vectors(2, DIM).sign()):
        expect_close(
            half(x.half()).float(), full(x), "float16 to give what float32 gives at |x| = 300", rtol=2e-3, atol=2e-3
        )
