"""One pass of a whole model under a trace: what the sum over parts must equal, number by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from explorer.assembly.block import Block
from explorer.assembly.build import build_model
from explorer.assembly.head import LmHead
from explorer.assembly.model import Model
from explorer.assembly.stack import Stack
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.cost.observation import META, Rules, Step
from explorer.cost.part import Role
from explorer.cost.parts import cross_entropy
from explorer.cost.rows import Counts
from explorer.cost.trace import Trace
from explorer.cost.trees import put_together, take_apart
from explorer.cost.watched import WatchedCache


def trace_whole(plan: ModelPlan, dtype: torch.dtype, step: Step, rules: Rules) -> dict[str, Counts]:
    """The costs of one pass of a model that is built as users build it, by the text of the part's role.

    Forward and backward together; "" holds what stands between parts: dropout, additions of gradients, the loss.
    rules: what plugins say of their own operators.
    """
    model = build_model(plan, device="meta", dtype=dtype)
    model.train(step.train)
    cache = _filled(model, plan, step, dtype)
    given = _inputs(plan, step.batch, step.tokens, dtype, step.train)
    source = None if step.source is None else _inputs(plan, step.batch, step.source, dtype, step.train)
    constants = [*model.parameters(), *model.buffers()]
    kept: Set[int] = frozenset() if cache is None else cache.storages
    trace = Trace(weights=constants, cache=kept, rules=rules)
    with torch.set_grad_enabled(step.train), trace, _labelled(model, plan, trace):
        out = model(given, source, cache=cache)
        if step.train:
            _backward(model, given, source, out, trace)
    found: dict[str, Counts] = {}
    for (part, _), counts in trace.counts_by_part().items():
        found[part] = found.get(part, Counts()) + counts
    return found


def _backward(model: Model, given: Tensor, source: Tensor | None, out: Tensor, trace: Trace) -> None:
    if isinstance(model.head, LmHead):
        targets = torch.empty(given.shape, dtype=torch.int64, device=META)
        out = cross_entropy(out, targets)
    wanted = [t for t in (given, source, *model.parameters()) if t is not None and t.requires_grad]
    grads = torch.autograd.grad(out, wanted, torch.empty_like(out), allow_unused=True)
    trace.leaves([grad for grad in grads if grad is not None])


def _inputs(plan: ModelPlan, batch: int, tokens: int, dtype: torch.dtype, train: bool) -> Tensor:
    if plan.vocab is not None:
        return torch.empty((batch, tokens), dtype=torch.int64, device=META)
    return torch.empty((batch, tokens, plan.dim), dtype=dtype, device=META, requires_grad=train)


@torch.no_grad()
def _filled(model: Model, plan: ModelPlan, step: Step, dtype: torch.dtype) -> WatchedCache | None:
    held = step.held
    if held is None:
        return None
    slots = model.stack.intake.slots
    cache = WatchedCache(slots, batch=held.batch, capacity=held.capacity, dtype=held.dtype, device=META)
    if not held.tokens and held.source is None:
        return cache
    empty = cache.timing_mark()
    source = None if held.source is None else _inputs(plan, held.batch, held.source, dtype, False)
    model(_inputs(plan, held.batch, max(held.tokens, 1), dtype, False), source, cache=cache)
    if not held.tokens:
        empty()
    return cache


@contextmanager
def _labelled(model: Model, plan: ModelPlan, trace: Trace) -> Iterator[None]:
    """Inside, what each part of the model does is recorded under the text of its role."""
    with ExitStack() as undo:
        label = partial(_label, undo, trace)
        stacks = [s for s in (model.encoder, model.stack) if s is not None]
        for stack, of in zip(stacks, plan.stacks, strict=True):
            _label_stack(stack, of, label)
        if model.head is not None:
            label(model.head, "forward", Role(plan.stack.name, "head"))
        yield


Label = Callable[[Any, str, Role], None]


def _label(undo: ExitStack, trace: Trace, owner: Any, method: str, role: Role) -> None:
    """Let a method of one object record under a role until the end.

    It gets its tensors behind a view each: autograd then adds up what several parts give back outside of any part.
    """
    original = getattr(owner, method)

    @wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        form, tensors = take_apart((args, kwargs))
        aliases = [t.view_as(t) if t.requires_grad else t for t in tensors]
        given = put_together(form, aliases)
        with trace.part(role.label):
            result = original(*given[0], **given[1])
        return _left(trace, result, dict(zip(map(id, aliases), tensors, strict=True)))

    setattr(owner, method, recorded)
    undo.callback(delattr, owner, method)


def _left(trace: Trace, result: Any, handed_through: Mapping[int, Tensor]) -> Any:
    """A result that leaves its part, with the tensors themselves where views of them were handed through."""
    form, tensors = take_apart(result)
    trace.leaves(tensors)
    return put_together(form, [handed_through.get(id(tensor), tensor) for tensor in tensors])


def _label_stack(stack: Stack, plan: StackPlan, label: Label) -> None:
    outside = partial(Role, plan.name)
    label(stack, "embed", outside("embed"))
    for first in stack._enter:
        label(first, "enter", outside("enter"))
    if stack.leave is not None:
        label(stack.leave, "leave", outside("leave"))
    if stack.final_norm is not None:
        label(stack.final_norm, "forward", outside("final_norm"))
    for index, (layer, block) in enumerate(zip(stack.layers, plan.layers, strict=True)):
        assert isinstance(layer, Block), layer
        for name, part in layer.named_children():
            assert isinstance(part, Sublayer | ParallelSublayers), part
            _label_site(part, name, partial(Role, plan.name, block=block, layer=index), label)


def _label_site(part: Sublayer | ParallelSublayers, name: str, at: Callable[..., Role], label: Label) -> None:
    label(part.residual, "read", at("read", sublayer=name))
    label(part.residual, "write", at("write", sublayer=name))
    for norm in ("norm", "norm_out", "norm_post"):
        if getattr(part, norm) is not None:
            label(getattr(part, norm), "forward", at(norm, sublayer=name))
    if isinstance(part, Sublayer):
        label(part.branch, "forward", at("branch", sublayer=name))
        return
    for inner, module in part.sublayers.items():
        label(module, "forward", at("branch", sublayer=inner))
        if inner in part.norms:
            label(part.norms[inner], "forward", at("norm", sublayer=inner))
