"""Positions: shapes, and a place that counts the same whether a text comes whole or in pieces."""

from __future__ import annotations

import torch
from torch import Tensor

from explorer.assembly.position import Position
from explorer.testing.checks.decoding import require_pick
from explorer.testing.expect import Unmet, expect, expect_close, expect_like, not_declared
from explorer.testing.toy import BATCH, DIM, HEAD_DIM, HEADS, TOKENS, Toy, vectors

_FAR = 301  # bfloat16 holds no odd number above 256: places must not be computed in it


def keeps_shape_and_dtype(toy: Toy) -> None:
    """embed and rotate to keep shape and dtype, bias to broadcast to (B, heads, T, S)"""
    for dtype in (torch.float32, torch.bfloat16):
        position = _position(toy, dtype)
        places = torch.arange(TOKENS)
        for act, x in ((position.embed, _tokens(dtype)), (position.rotate, _heads(dtype))):
            expect_like(act(x, places), tuple(x.shape), dtype, f"{act.__name__}(x, positions)")
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
    for act, x in ((position.embed, _tokens()), (position.rotate, _heads())):
        part = act(x[..., later:, :], places[later:])
        wanted = f"{act.__name__} to give tokens {later} to {TOKENS - 1} alone what it gives them in the text"
        expect_close(part, act(x, places)[..., later:, :], wanted)
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
    if position.max_tokens is not None and position.max_tokens <= _FAR + TOKENS:
        not_declared(f"position '{toy.component.label}' holds {position.max_tokens} tokens")
    places = torch.arange(_FAR, _FAR + TOKENS)
    pairs = ((position.embed, half.embed, _tokens()), (position.rotate, half.rotate, _heads()))
    for act, act_half, x in pairs:
        came = act_half(x.bfloat16(), places).float()
        wanted = f"{act.__name__} from place {_FAR} on in bfloat16 to be near that in float32"
        # Room for the rounding of x, of a table and of their sum, 2^-8 of values up to 4; one place off is far more.
        expect_close(came, act(x, places), wanted, rtol=0.02, atol=0.04)


def stays_with_the_stack(toy: Toy) -> None:
    """an attention to keep the position that it was given unregistered: its parameters are the stack's"""
    require_pick(toy, "position")
    attention = next(toy.alone().block.parts()).branches[0]
    owned = [name for name, module in attention.named_modules() if isinstance(module, Position)]
    expect(not owned, "no Position among its submodules (keep it in a tuple)", ", ".join(owned))


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
