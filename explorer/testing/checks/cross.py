"""Cross-attention: the same attention over a context."""

from __future__ import annotations

from typing import Any

import torch

from explorer.assembly.model import BlockModule
from explorer.blueprint.fields import FIELDS
from explorer.testing.checks.decoding import expect_decodes
from explorer.testing.checks.model import expect_gradients
from explorer.testing.expect import expect, expect_close, expect_like, not_declared
from explorer.testing.toy import BATCH, DIM, TOKENS, VOCAB, Toy, ids, vectors

_SOURCE = 3


def crosses(toy: Toy) -> None:
    """an attention that takes a `context` to serve as cross-attention: shape, gradients, whole source, cache"""
    _require_context(toy)
    model = toy.model(as_cross_attention(toy))
    source = ids(tokens=_SOURCE, seed=1)
    expect_like(model(ids(), source=source), (BATCH, TOKENS, VOCAB), torch.float32, "the decoder's output")
    expect_gradients(model, ids(), source)
    with torch.no_grad():
        _expect_reads_all(toy.block(as_cross_attention(toy), "decoder.block").eval())
        expect_decodes(model.eval(), source=source)


def _expect_reads_all(block: BlockModule) -> None:
    """Every token reads the whole context of its own row."""
    context = vectors(BATCH, _SOURCE, DIM, seed=1)
    out = block(vectors(), context=context, ids=ids())
    for token in range(_SOURCE):
        changed = context.clone()
        changed[0, token] += 1
        other = block(vectors(), context=changed, ids=ids())
        moved = not torch.equal(other[0, 0], out[0, 0])
        expect(moved, f"the first token to see token {token} of its context", "no change when that one changes")
        expect_close(other[1], out[1], "row 1 to stay as it is when the context of row 0 changes")


def _require_context(toy: Toy) -> None:
    """Raises: SkipTest where the attention's forward names no `context`."""
    (wiring,) = next(toy.alone().block.parts()).wirings
    if "context" not in wiring.names:
        not_declared(f"attention '{toy.component.label}': its forward takes no `context`")


def as_cross_attention(toy: Toy) -> dict[str, Any]:
    """An encoder-decoder of one layer each, with the attention in the place of cross-attention only."""
    crossing = toy.written()[toy.kind]
    default = FIELDS[toy.kind].default
    return {toy.kind: default, "layers": 1, "encoder": {}, "decoder": {"cross_attention": crossing}}
