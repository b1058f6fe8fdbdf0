"""Positions: shapes, and a place that counts the same whether a text comes whole or in pieces."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from explorer.assembly.position import Position
from explorer.testing.expect import Unmet, expect, expect_close, expect_like
from explorer.testing.toy import BATCH, DIM, HEAD_DIM, HEADS, TOKENS, Toy, vectors

_FAR = 301  # bfloat16 holds no odd number above 256: places must not be computed in it


def keeps_shape_and_dtype(toy: Toy) -> None:
    """embed and rotate to keep shape and dtype, bias to broadcast to (B, heads, T, S)"""
    for dtype in (torch.float32, torch.bfloat16):
        position = _position(toy, dtype)
        for name, x in (("embed", _tokens(dtype)), ("rotate", _heads(dtype))):
            expect_like(getattr(position, name)(x, torch.arange(TOKENS)), tuple(x.shape), dtype, f"{name}(x, positions)")
        bias = position.bias(TOKENS, TOKENS, 0)
        if bias is not None:
            expect(_broadcasts(bias), f"bias to broadcast to {(BATCH, HEADS, TOKENS, TOKENS)}", tuple(bias.shape))
    longest = _position(toy).max_tokens
    expect(longest is None or longest > 0, "max_tokens to be None or a number of tokens", longest)


@torch.no_grad()
def counts_from_the_start(toy: Toy) -> None:
    """the last tokens of a text to get the places they have in the whole text"""
    position, later = _position(toy), 2
    places = torch.arange(TOKENS)
    for name, x in (("embed", _tokens()), ("rotate", _heads())):
        whole = getattr(position, name)(x, places)[..., later:, :]
        part = getattr(position, name)(x[..., later:, :], places[later:])
        expect_close(part, whole, f"{name} to give tokens {later} to {TOKENS - 1} alone what it gives them in the text")
    bias = position.bias(TOKENS, TOKENS, 0)
    part_bias = position.bias(TOKENS - later, TOKENS, later)
    if bias is not None and part_bias is not None:
        full = bias.expand(*bias.shape[:-2], TOKENS, TOKENS)
        rows = part_bias.expand(*part_bias.shape[:-2], TOKENS - later, TOKENS)
        expect_close(rows, full[..., later:, :], "bias(T - 2, S, 2) to be the last rows of bias(T, S, 0)")


@torch.no_grad()
def far_places_in_bfloat16(toy: Toy) -> None:
    """token 301 in bfloat16 to be where it is in float32"""
    position, half = _position(toy), _position(toy, torch.bfloat16)
    half.load_state_dict(position.state_dict())
    if position.max_tokens is not None and position.max_tokens <= _FAR:
        return
    for (name, x), T in product((("embed", _tokens()), ("rotate", _heads())), (1, TOKENS)):
        places = torch.arange(_FAR, _FAR + T)
        wanted = getattr(position, name)(x[..., :T, :], places)
        came = getattr(half, name)(x[..., :T, :].bfloat16(), places).float()
        # Rounding of x, of the table and of the sum; a place that is off by one is off by 1 and more.
        expect_close(came, wanted, f"{name} at place {_FAR} in bfloat16 to be near that in float32", rtol=0.03, atol=0.06)


def _position(toy: Toy, dtype: torch.dtype = torch.float32) -> Position:
    position = toy.bare(dtype=dtype)
    if not isinstance(position, Position):
        raise Unmet("an explorer.Position", type(position).__name__)
    return position


def _tokens(dtype: torch.dtype = torch.float32) -> Tensor:
    return vectors(BATCH, TOKENS, DIM).to(dtype)


def _heads(dtype: torch.dtype = torch.float32) -> Tensor:
    return vectors(BATCH, HEADS, TOKENS, HEAD_DIM).to(dtype)


def _broadcasts(bias: Tensor) -> bool:
    shape = (BATCH, HEADS, TOKENS, TOKENS)
    sizes = zip(reversed(bias.shape), reversed(shape), strict=False)
    return bias.ndim <= len(shape) and all(size in (1, full) for size, full in sizes)
