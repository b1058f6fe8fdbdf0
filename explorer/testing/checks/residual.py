"""Residuals: declared placements, and a stream that only `write` changes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from explorer.assembly.residual import PLACEMENTS
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.errors import RefusedError
from explorer.testing.expect import expect, expect_close, expect_like
from explorer.testing.toy import BATCH, DIM, TOKENS, VOCAB, Toy, ids, vectors

_LAYOUTS: dict[str, Any] = {"sequential": "sequential", "parallel": {"parallel": {"shared_norm": True}}}


def declares_placements(toy: Toy) -> None:
    """`placements` to name norm placements: those build and run, the others are refused"""
    declared = toy.placements
    valid = isinstance(declared, tuple) and bool(declared) and set(declared) <= set(PLACEMENTS)
    expect(valid, f"placements to be a tuple of some of {', '.join(PLACEMENTS)}", repr(declared))
    for placement in PLACEMENTS:
        if placement in declared:
            _expect_runs(toy, placement)
            continue
        try:
            toy.model({"placement": placement}, device="meta")
        except RefusedError:
            continue
        expect(False, f"placement {placement}, which is not declared, to be refused", "a model")


def _expect_runs(toy: Toy, placement: str) -> None:
    for name, layout in _LAYOUTS.items():
        out = toy.model({"placement": placement, "layout": layout})(ids())
        what = f"the output with placement {placement} in the {name} layout"
        expect_like(out, (BATCH, TOKENS, VOCAB), torch.float32, what)


@torch.no_grad()
def silent_sublayers(toy: Toy) -> None:
    """sublayers that give zeros to leave the stream to `enter`, `read`, `write(state, 0)` and `leave` alone"""
    for placement in toy.placements:
        block = toy.block({"placement": placement}).eval()
        parts = list(block.block.parts())
        for weight in (w for part in parts for branch in part.branches for w in branch.parameters()):
            weight.zero_()
        state = parts[0].residual.enter(vectors())
        for part in parts:
            state = _silent(part, state)
        wanted = f"with placement {placement} and silent sublayers what `enter`, `write(state, 0)` and `leave` give"
        expect_close(block(vectors(), ids=ids()), block.stack.close(state), wanted)


def _silent(part: Sublayer | ParallelSublayers, state: Any) -> Any:
    x, state = part.residual.read(state)
    expect_like(x, (BATCH, TOKENS, DIM), torch.float32, "what `read` gives to the sublayer")
    silence: Tensor = torch.zeros_like(x)
    state = part.residual.write(state, silence)
    return state if part.norm_post is None else part.norm_post(state)
