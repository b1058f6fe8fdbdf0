"""One pass of a whole model under a trace: what the sum over parts must equal, number by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from explorer.assembly.block import Block
from explorer.assembly.build import build_block, build_model
from explorer.assembly.cache import Cache
from explorer.assembly.head import LmHead
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.stack import Stack
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.cost.ledger.rows import Counts
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.observation import META, Rules, Step
from explorer.cost.parts.part import Role
from explorer.cost.parts.parts import cross_entropy
from explorer.cost.parts.subject import BlockName
from explorer.cost.parts.trees import put_together, take_apart
from explorer.cost.parts.watched import WatchedCache

Labelled = Callable[["WholeCall", Trace], AbstractContextManager[None]]
"""Inside, what is called is recorded under labels."""


def trace_whole(
    plan: ModelPlan,
    block: BlockName | None,
    dtype: torch.dtype,
    step: Step,
    rules: Rules,
    labelled: Labelled | None = None,
) -> dict[str, Counts]:
    """The costs of one pass of a model, or of a block alone, that is built as users build it, by part (`Role.label`).

    Forward and backward together; "" holds what stands between parts: dropout, additions of gradients, the loss.
    For the rest see `traced_whole`.
    """
    return _by_part(traced_whole(plan, block, dtype, step, rules, labelled))


@dataclass(frozen=True)
class Whole:
    """One pass of the whole. parts: its costs by part, as `trace_whole` has them. cache_bytes: held after it."""

    module: Model | BlockModule
    parts: Mapping[str, Counts]
    cache_bytes: int


def run_whole(plan: ModelPlan, block: BlockName | None, dtype: torch.dtype, step: Step, rules: Rules) -> Whole:
    """One pass of a model, or of a block alone, that is built as users build it. rules: see `traced_whole`."""
    call = WholeCall.of(plan, block, dtype, step)
    cache = call.filled()
    trace = _traced(call, cache, rules, labelled_by_part)
    return Whole(call.module, _by_part(trace), 0 if cache is None else cache.nbytes())


def _by_part(trace: Trace) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for (part, _), counts in trace.counts_by_part().items():
        found[part] = found.get(part, Counts()) + counts
    return found


def traced_whole(
    plan: ModelPlan,
    block: BlockName | None,
    dtype: torch.dtype,
    step: Step,
    rules: Rules,
    labelled: Labelled | None = None,
) -> Trace:
    """The trace of one pass of a model, or of a block alone, that is built as users build it: its rows are in order.

    rules: what plugins say of their own operators. labelled: other labels than those of parts.
    """
    call = WholeCall.of(plan, block, dtype, step)
    return _traced(call, call.filled(), rules, labelled or labelled_by_part)


def _traced(call: WholeCall, cache: WatchedCache | None, rules: Rules, labelled: Labelled) -> Trace:
    step = call.step
    given, source = call.inputs(step.tokens, step.source, step.train)
    constants = [*call.module.parameters(), *call.module.buffers()]
    kept: Set[int] = frozenset() if cache is None else cache.storages
    trace = Trace(weights=constants, cache=kept, rules=rules)
    with torch.set_grad_enabled(step.train), trace, labelled(call, trace):
        out = call.run(given, source, cache)
        if step.train:
            _backward(call.module, given, source, out, trace)
    return trace


def _backward(module: Model | BlockModule, given: Tensor, source: Tensor | None, out: Tensor, trace: Trace) -> None:
    if isinstance(module, Model) and isinstance(module.head, LmHead):
        out = cross_entropy(out, torch.empty(given.shape, dtype=torch.int64, device=META))
    wanted = [t for t in (given, source, *module.parameters()) if t is not None and t.requires_grad]
    grads = torch.autograd.grad(out, wanted, torch.empty_like(out), allow_unused=True)
    trace.leaves([grad for grad in grads if grad is not None])


@dataclass(frozen=True)
class WholeCall:
    """A module and how it is called."""

    module: Model | BlockModule
    plan: ModelPlan
    stacks: tuple[StackPlan, ...]
    dtype: torch.dtype
    step: Step

    @staticmethod
    def of(plan: ModelPlan, block: BlockName | None, dtype: torch.dtype, step: Step) -> WholeCall:
        """The module is built, and in the mode of the step."""
        if block is None:
            model = build_model(plan, device="meta", dtype=dtype)
            return WholeCall(model.train(step.train), plan, plan.stacks, dtype, step)
        module = build_block(plan, block.label, device="meta", dtype=dtype)
        return WholeCall(module.train(step.train), plan, (replace(block.stack, layers=(block.name,)),), dtype, step)

    def run(self, given: Tensor, source: Tensor | None, cache: Cache | None) -> Any:
        if isinstance(self.module, Model):
            return self.module(given, source, cache=cache)
        ids = None if self.plan.vocab is None else torch.empty(given.shape[:2], dtype=torch.int64, device=META)
        return self.module(given, source, cache=cache, ids=ids)

    def inputs(self, tokens: int, source: int | None, train: bool) -> tuple[Tensor, Tensor | None]:
        return self._input(tokens, train), None if source is None else self._input(source, train)

    def _input(self, tokens: int, train: bool) -> Tensor:
        batch = self.step.batch
        if self.plan.vocab is not None and isinstance(self.module, Model):
            return torch.empty((batch, tokens), dtype=torch.int64, device=META)
        return torch.empty((batch, tokens, self.plan.dim), dtype=self.dtype, device=META, requires_grad=train)

    @torch.no_grad()
    def filled(self) -> WatchedCache | None:
        """A cache that holds what the step finds there."""
        held = self.step.held
        if held is None:
            return None
        slots = self.module.stack.intake.slots
        cache = WatchedCache(slots, batch=held.batch, capacity=held.capacity, dtype=held.dtype, device=META)
        if held.tokens or held.source is not None:
            empty = cache.timing_mark()
            self.run(*self.inputs(max(held.tokens, 1), held.source, False), cache)
            if not held.tokens:
                empty()
        return cache


@contextmanager
def labelled_by_part(call: WholeCall, trace: Trace) -> Iterator[None]:
    """Inside, what each part of the module does is recorded under the label of its role."""
    module = call.module
    encoder, head = (module.encoder, module.head) if isinstance(module, Model) else (None, None)
    with ExitStack() as undo:
        label = partial(_label, undo, trace)
        stacks = [stack for stack in (encoder, module.stack) if stack is not None]
        for stack, of in zip(stacks, call.stacks, strict=True):
            _label_stack(stack, of, label)
        if head is not None:
            label(head, "forward", Role(call.plan.stack.name, "head"))
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
        handed_through = dict(zip(map(id, aliases), tensors, strict=True))
        if "shared" in kwargs:  # what layers share was taken apart too
            kwargs["shared"].update(_left(trace, given[1]["shared"], handed_through))
        return _left(trace, result, handed_through)

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
