"""A fused function as one row each way, whatever it is made of; on real tensors too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from explorer.assembly.visible import Sight
from explorer.cost.ledger.chains import Access, Touch
from explorer.cost.ledger.fused import FUSED, Cost, Fused
from explorer.cost.ledger.kernels import in_transform
from explorer.cost.ledger.ledger import Ledger
from explorer.cost.ledger.traffic import Share, whole


def call_fused(ledger: Ledger, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """func(*args, **kwargs) as one row of its own each way; real tensors keep their values and gradients."""
    fused = FUSED[func]
    if not fused.one_kernel(*args, **kwargs):
        return func(*args, **kwargs)
    if not in_transform():
        leaves, spec = tree_flatten((args, dict(kwargs)))
        return _OneCall.apply(_Call(ledger, func, fused, spec, torch.is_grad_enabled()), *leaves)
    # A batched tensor needs its batching rule: the products are counted one by one.
    out = func(*args, **kwargs)
    products, _ = fused.cost(out, *args, **kwargs)
    if products.exact != products.dense:
        reason = products.reason or f"{fused.name} was taken apart: its products are counted without its mask"
        ledger.note(fused.name, reason)
    return out


@dataclass(frozen=True)
class _Call:
    """What one fused call needs besides its tensors. grad: whether autograd was on outside."""

    ledger: Ledger
    func: Callable[..., Any]
    fused: Fused
    spec: TreeSpec
    grad: bool

    def run(self, leaves: Sequence[Any]) -> Tensor:
        args, kwargs = tree_unflatten(leaves, self.spec)
        on_meta = all(leaf.is_meta for leaf in leaves if isinstance(leaf, Tensor))
        result: Tensor = (self.fused.meta if on_meta else self.func)(*args, **kwargs)
        return result

    def cost(self, out: Tensor, leaves: Sequence[Any]) -> Cost:
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.fused.cost(out, *args, **kwargs)


class _OneCall(torch.autograd.Function):
    """The function inside a pause, so that autograd keeps one node and the ledger one row each way."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> Any:
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        with call.ledger.pause():
            if all(tensor.is_meta for tensor in given):
                inside, out = None, call.run(leaves)
            else:
                inside, out = _really(call, leaves, ctx.needs_input_grad[1:])
        products, work = call.cost(out, leaves)
        read, written = _touches(call.ledger, call.fused.reads(given)), _touches(call.ledger, [whole(out)])
        call.ledger.make([out], given)
        call.ledger.record(call.fused.name, call.fused.kind, products, work, Access(read, written))
        ctx.back = _Back(call, inside, (products, work), written if call.fused.keeps_output else ())
        # Saved as the kernel would save them: under a checkpoint, reading them back is what recomputes the forward.
        ctx.save_for_backward(*(leaf if isinstance(leaf, Tensor) else None for leaf in leaves))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        run = _OneBackward.apply if torch.is_grad_enabled() else partial(_OneBackward.forward, None)
        return None, *run(ctx.back, ctx.needs_input_grad[1:], grad, *ctx.saved_tensors)


@dataclass(frozen=True)
class _Back:
    """What the backward of one call needs. inside: None on meta. result: as it is read again."""

    call: _Call
    inside: _Inside | None
    cost: Cost
    result: tuple[Touch, ...]


class _OneBackward(torch.autograd.Function):
    """The backward as one row. Where it is differentiated too, as by `create_graph`, that is one row without a rule."""

    @staticmethod
    def forward(ctx: Any, back: _Back, asked: Sequence[bool], grad: Tensor, *saved: Tensor | None) -> Any:
        call, ledger = back.call, back.call.ledger
        with ledger.pause():
            grads = [like if needed else None for like, needed in zip(_like(saved), asked, strict=True)]
            if back.inside is not None:
                back.inside.fill(grads, grad)
        results = [tensor for tensor in grads if tensor is not None]
        read = _touches(ledger, [*call.fused.reads([t for t in saved if t is not None]), whole(grad)])
        access = Access((*read, *back.result), _touches(ledger, map(whole, results)))
        ledger.make(results)
        products, work = back.cost
        times = len(results) if call.fused.by_operand else 2
        ledger.record(f"{call.fused.name}_backward", call.fused.kind, products.times(times), work * times, access)
        if ctx is not None:
            ctx.back = back
            ctx.save_for_backward(grad, *saved)
        return tuple(grads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call, ledger = ctx.back.call, ctx.back.call.ledger
        if ctx.back.inside is not None:
            raise NotImplementedError(f"a trace of tensors with values cannot differentiate {call.fused.name} twice")
        saved, asked = ctx.saved_tensors, ctx.needs_input_grad[2:]
        with ledger.pause():
            found = [like if needed else None for like, needed in zip(_like(saved), asked, strict=True)]
        given, results = ([t for t in some if t is not None] for some in ((*saved, *grads), found))
        ledger.make(results)
        access = Access(_touches(ledger, map(whole, given)), _touches(ledger, map(whole, results)))
        ledger.record(f"{call.fused.name}_backward_backward", "unknown", access=access, counted=False)
        return None, None, *found


def _like(tensors: Iterable[Tensor | None]) -> list[Tensor | None]:
    return [None if tensor is None else torch.empty_like(tensor) for tensor in tensors]


def _touches(ledger: Ledger, shares: Iterable[Share]) -> tuple[Touch, ...]:
    return tuple(ledger.touch(*share) for share in shares)


@dataclass(frozen=True)
class _Inside:
    """The function's own graph on real tensors, from copies of the leaves to its result."""

    copies: Sequence[Any]
    out: Tensor

    def fill(self, grads: Sequence[Tensor | None], grad: Tensor) -> None:
        """Write the gradients that are asked for into `grads`."""
        asked = [(copy, into) for copy, into in zip(self.copies, grads, strict=True) if into is not None]
        found = torch.autograd.grad(self.out, [copy for copy, _ in asked], grad, retain_graph=True, allow_unused=True)
        for value, (_, into) in zip(found, asked, strict=True):
            into.zero_() if value is None else into.copy_(value)


def _really(call: _Call, leaves: Sequence[Any], needed: Sequence[bool]) -> tuple[_Inside | None, Tensor]:
    """The function on real tensors, and its graph where gradients may be asked for; strides as on meta."""
    with torch.no_grad():
        device = next(leaf.device for leaf in leaves if isinstance(leaf, Tensor))
        like = call.run([_shapes(leaf, device) for leaf in leaves])
    inside, out = None, None
    if call.grad and any(needed):
        copies = [
            leaf.detach().requires_grad_(need) if isinstance(leaf, Tensor) else leaf
            for leaf, need in zip(leaves, needed, strict=True)
        ]
        # Kept by nobody's hooks: what a checkpoint, or a count of what is saved, sees is what the call itself saves.
        with torch.enable_grad(), saved_tensors_hooks(_as_is, _as_is):
            result = call.run(copies)
        inside, out = _Inside(copies, result), result.detach()
    else:
        out = call.run(leaves)
    if out.stride() != like.stride():
        out = torch.empty_strided(like.shape, like.stride(), dtype=out.dtype, device=out.device).copy_(out)
    return inside, out


_PLAIN = (bool, int, float, str, type(None))


def _shapes(leaf: Any, device: torch.device) -> Any:
    """An argument as it would be on meta."""
    if isinstance(leaf, Tensor):
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
    return leaf if isinstance(leaf, _PLAIN) else _OnMeta(leaf, device)


@dataclass(frozen=True)
class _OnMeta:
    """A rule of what a query sees, which may hold tensors of a device, for queries on meta."""

    sight: Sight
    device: torch.device

    def pairs(self, T: int, S: int) -> int:
        return self.sight.pairs(T, S)

    def mask(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor:
        return self.sight.mask(T, S, self.device).to("meta")

    def everything(self, T: int, S: int) -> bool:
        return self.sight.everything(T, S)

    def sdpa_causal(self, T: int, S: int) -> bool:
        return self.sight.sdpa_causal(T, S)


def _as_is(tensor: Tensor) -> Tensor:
    return tensor
