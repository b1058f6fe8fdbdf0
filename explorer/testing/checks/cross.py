"""Cross-attention: the same attention over a context."""

from __future__ import annotations

import torch

from explorer.assembly.model import Model
from explorer.blueprint.fields import FIELDS
from explorer.testing.checks.decoding import expect_decodes
from explorer.testing.checks.model import expect_gradients
from explorer.testing.expect import expect, expect_close, expect_like, not_declared
from explorer.testing.toy import BATCH, TOKENS, VOCAB, Toy, ids

SOURCE = 3


def crosses(toy: Toy) -> None:
    """an attention that takes a `context` to serve as cross-attention: shape, gradients, whole source, cache"""
    model = _decoder(toy)
    source = ids(tokens=SOURCE, seed=1)
    expect_like(model(ids(), source=source), (BATCH, TOKENS, VOCAB), torch.float32, "the decoder's output")
    expect_gradients(model, ids(), source)
    with torch.no_grad():
        _expect_reads_all(model.eval())
        expect_decodes(model, source=source)


def _expect_reads_all(model: Model) -> None:
    """Every token reads the whole source of its own row."""
    source = ids(tokens=SOURCE, seed=1)
    out = model(ids(), source=source)
    source[0, -1] = (source[0, -1] + 1) % VOCAB
    other = model(ids(), source=source)
    moved = not torch.isclose(other[0, 0], out[0, 0]).all()
    expect(moved, "the first token to see the last token of its source", "no change when that token changes")
    expect_close(other[1], out[1], "row 1 to stay as it is when the source of row 0 changes")


def _decoder(toy: Toy) -> Model:
    """An encoder-decoder of one layer each, with the attention in the place of cross-attention.

    Raises: SkipTest where its forward takes no `context`.
    """
    (wiring,) = next(toy.alone().block.parts()).wirings
    if "context" not in wiring.names:
        not_declared(f"attention '{toy.component.label}': its forward takes no `context`")
    crossing = toy.written()[toy.kind]
    default = FIELDS[toy.kind].default
    return toy.model({toy.kind: default, "layers": 1, "encoder": {}, "decoder": {"cross_attention": crossing}})
