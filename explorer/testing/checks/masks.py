"""Which keys an attention reads: mask, window and causal rule, looked at from outside."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from explorer.assembly.declared import beyond_window, padding_only
from explorer.assembly.model import BlockModule
from explorer.errors import RefusedError, UsageError
from explorer.testing.checks.decoding import hide_column, padding, require_mask, require_padding, require_pick
from explorer.testing.expect import Unmet, expect, expect_close, not_declared
from explorer.testing.toy import BATCH, HEADS, TOKENS, Toy, ids, vectors


def masked_out_row(toy: Toy) -> None:
    """a query that sees no key to read nothing, give finite gradients and leave the other rows as they are"""
    block = toy.alone()
    require_mask(block)
    row, others = 1, [0, 2, 3, 4]
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask[row] = False
    x = vectors().requires_grad_()
    out = _run(block, x, mask)
    expect(bool(out.isfinite().all()), "finite outputs where a row of the mask is all False", "nan or infinite values")
    (out * vectors(seed=1)).sum().backward()
    for name, tensor in (("the input", x), *block.named_parameters()):
        finite = tensor.grad is None or bool(tensor.grad.isfinite().all())
        expect(finite, f"a finite gradient of {name} where a row of the mask is all False", "nan or infinite values")
    with torch.no_grad():
        expect_close(out[:, others], _run(block, x)[:, others], "rows that the mask leaves alone to stay as they are")
        wanted = "the same output for any tokens where the query sees none of them"
        expect_close(_run(block, vectors(seed=2), mask)[:, row], out[:, row], wanted)
    if "bias" in toy.component.schema.picks:
        # Zeros by the rule of `attend`, and a linear map without bias keeps them.
        expect_close(out[:, row], torch.zeros_like(out[:, row]), "zeros where the query sees no key (bias: false)")


@torch.no_grad()
def mask_hides(toy: Toy) -> None:
    """True in a mask to mean "may attend": a key that is False moves no query"""
    block = toy.alone().eval()
    require_mask(block)
    out = _run(block, vectors(), hide_column(1))
    other = _run(block, _changed(1), hide_column(1))
    _expect_unmoved(out, other, 1, rows=(0, 2, 3, 4), why="under a mask that hides it")


@torch.no_grad()
def mask_broadcasts(toy: Toy) -> None:
    """a mask of any shape that broadcasts to (B, heads, T, S)"""
    block = toy.alone().eval()
    require_mask(block)
    mask = hide_column(1)
    out = _run(block, vectors(), mask)
    shapes = ((1, 1, TOKENS, TOKENS), (BATCH, 1, TOKENS, TOKENS), (BATCH, HEADS, TOKENS, TOKENS))
    for shape in shapes:
        expect_close(_run(block, vectors(), mask.expand(shape)), out, f"a mask of shape {shape} to act as (T, S) does")


@torch.no_grad()
def padding_hides(toy: Toy) -> None:
    """padding, a mask (B, 1, 1, S), to hide a key from all queries of its text and from no other"""
    block = toy.alone().eval()
    require_padding(block)
    out = _run(block, vectors(), padding(1))
    expect_close(out[:-1], _run(block, vectors())[:-1], "padding in the last text to leave the others as they are")
    other = _run(block, _changed(1), padding(1))
    _expect_unmoved(out[-1:], other[-1:], 1, rows=(0, 2, 3, 4), why="of padding (B, 1, 1, S)")
    if padding_only(block) is not None:
        _expect_refused(block, hide_column(1))


@torch.no_grad()
def window_hides(toy: Toy) -> None:
    """a window of 2 to hide all but a token and the one before"""
    require_pick(toy, "window")
    block = toy.alone({"window": 2}).eval()
    if (said := beyond_window(block)) is not None:
        not_declared(f"attention '{toy.component.label}' reads beyond its window: {said}")
    out = _run(block, vectors())
    for key in range(TOKENS):
        rows = [row for row in range(TOKENS) if not key <= row <= key + 1]
        _expect_unmoved(out, _run(block, _changed(key)), key, rows, why="outside the window of 2")


@torch.no_grad()
def centred_window_hides(toy: Toy) -> None:
    """a window of 3 without causal to hide all but a token and its two neighbours"""
    require_pick(toy, "window")
    require_pick(toy, "causal")
    block = toy.alone({"window": 3, "causal": False}).eval()
    out = _run(block, vectors())
    for key in range(TOKENS):
        rows = [row for row in range(TOKENS) if abs(row - key) > 1]
        _expect_unmoved(out, _run(block, _changed(key)), key, rows, why="outside the centred window of 3")


@torch.no_grad()
def causal_is_a_mask(toy: Toy) -> None:
    """causal: true to equal causal: false under a triangle"""
    require_pick(toy, "causal")
    causal, free = toy.alone().eval(), _bidirectional(toy)
    free.load_state_dict(causal.state_dict())
    require_mask(free)
    triangle = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    wanted = "causal: true to give what causal: false gives under a triangular mask"
    expect_close(_run(causal, vectors()), _run(free, vectors(), triangle), wanted)
    moved = not torch.equal(_run(free, vectors())[:, 0], _run(free, _changed(TOKENS - 1))[:, 0])
    expect(moved, "with causal: false the last token to move the first", "no change: the future stays hidden")


def _expect_refused(block: BlockModule, mask: Tensor) -> None:
    try:
        _run(block, vectors(), mask)
    except UsageError:
        return
    raise Unmet("a mask (T, S) to be refused where `padding_only` is declared", "an output")


def _bidirectional(toy: Toy) -> BlockModule:
    """Raises: SkipTest where the attention is causal only."""
    try:
        return toy.alone({"causal": False}).eval()
    except RefusedError as error:
        return not_declared(error.message)


def _run(block: BlockModule, x: Tensor, mask: Tensor | None = None) -> Tensor:
    out: Tensor = block(x, mask=mask, ids=ids())
    return out


def _changed(token: int) -> Tensor:
    """The vectors, one token of each text replaced."""
    x = vectors()
    x[:, token] = vectors(seed=3)[:, token]
    return x


def _expect_unmoved(out: Tensor, other: Tensor, key: int, rows: Iterable[int], why: str) -> None:
    for row in rows:
        expect_close(other[:, row], out[:, row], f"token {row} to stay as it is when token {key} changes, {why}")
