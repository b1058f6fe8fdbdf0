"""What a plan costs: parameters, matrix products, cache and weight bytes of its blocks and of the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from explorer.assembly.head import LmHead
from explorer.assembly.model import BlockModule, Model
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import STORED_BYTES, Workload
from explorer.cost.costs import BlockParams, Cost, Counted, KvBytes, Params
from explorer.cost.observing import Observed, active, growth, observe
from explorer.cost.parts import Part, Subjects, longest, parts_of
from explorer.cost.walk import Subject
from explorer.errors import RefusedError, UsageError


def count(plan: ModelPlan, workloads: Sequence[Workload]) -> Counted:
    """Count a plan on meta, for each workload its blocks and, where the plan is a whole model, the model.

    Raises: RefusedError where a component or the combination refuses, or a workload cannot run on the plan.
    """
    counter = _Counter(plan, Subjects(plan), parts_of(plan))
    settled = [counter.settled(workload) for workload in workloads]
    return Counted(counter.params(), tuple(cost for workload in settled for cost in counter.costs(workload)))


@dataclass
class _Counter:
    """Counts one plan."""

    plan: ModelPlan
    subjects: Subjects
    parts: tuple[Part, ...]
    _growths: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def settled(self, workload: Workload) -> Workload:
        """The workload with its defaults for this plan."""
        try:
            full = workload.settled(longest(self.plan), encoder=self.plan.encoder is not None)
        except UsageError as error:
            raise RefusedError(str(error)) from error
        if full.phase == "decode" and not all(part.caches for part in self._last_stack()):
            raise RefusedError("workload: decode needs a causal stack; with `causal: false` there is no next token")
        return full

    def params(self) -> Params:
        blocks = tuple(BlockParams(p.label, p.layers, _numel(_own(self.subjects.block(p).module))) for p in self.parts)
        if self.plan.whole:
            subject = self.subjects.model()
            assert isinstance(subject.module, Model), subject
            return Params(blocks, _numel(subject.module), *active(subject), _shared(subject.module))
        if len(self.parts) > 1:
            return Params(blocks, None, None, "there are several blocks and no model: write `layers`", 0)
        return Params(blocks, None, *active(self.subjects.block(self.parts[0])), 0)

    def costs(self, workload: Workload) -> Iterator[Cost]:
        for part in self.parts:
            yield self._block(part, workload)
        if self.plan.whole:
            yield self._model(workload)

    def _last_stack(self) -> list[Part]:
        return [part for part in self.parts if part.stack is self.plan.stack]

    def _block(self, part: Part, workload: Workload) -> Cost:
        subject = self.subjects.block(part, workload.dtype)
        weights = _weight_bytes(_own(subject.module), subject.dtype, workload)
        if part.in_encoder and workload.phase == "decode":
            # Decode runs no encoder: what it made stands in the decoder's cache.
            return Cost(workload, "block", part.label, 0, 0, weights, KvBytes(0, 0, 0))
        observed = observe(subject, _on_source(workload) if part.in_encoder else workload)
        return _cost(workload, "block", part.label, weights, observed, self._kv(part, workload, observed))

    def _model(self, workload: Workload) -> Cost:
        subject = self.subjects.model(workload.dtype)
        weights = _weight_bytes(subject.module, subject.dtype, workload)
        observed = observe(subject, workload)
        pieces = [(part.layers, self._kv(part, workload, observed)) for part in self.parts if part.layers]
        reason = next((kv.reason for _, kv in pieces if kv.reason), None)
        per_token = sum(layers * (kv.per_token or 0) for layers, kv in pieces)
        full = sum(layers * (kv.per_token_full or 0) for layers, kv in pieces)
        kv = KvBytes(None, None, None, reason) if reason else KvBytes(per_token, full, observed.cache_bytes)
        return _cost(workload, "model", "model", weights, observed, kv)

    def _kv(self, part: Part, workload: Workload, observed: Observed) -> KvBytes:
        subject = self.subjects.block(part, workload.dtype)
        if part.caches and not subject.caches:
            return KvBytes(None, None, None, subject.module.stack.intake.limits["cache"])
        if observed.failure:
            return KvBytes(None, None, None, observed.failure)
        return KvBytes(*self._growth(part, subject, workload), observed.cache_bytes)

    def _growth(self, part: Part, subject: Subject, workload: Workload) -> tuple[int, int]:
        assert workload.kv_dtype is not None, workload
        key = part.label, workload.kv_dtype
        if key not in self._growths:
            opened = growth(subject, 0, workload.kv_dtype)
            full = growth(subject, part.window, workload.kv_dtype) if part.window else opened
            self._growths[key] = opened, full
        return self._growths[key]


def _cost(workload: Workload, scope: str, name: str, weights: int, observed: Observed, kv: KvBytes) -> Cost:
    counts = observed.counts
    if counts is None:
        failure = (f"{scope}: {observed.failure}",)
        return Cost(workload, scope, name, None, None, weights, kv, (observed.failure or "",), failure)
    notes = [f"matmul_flops_exact: {counts.exact_reason}"] if counts.exact_reason else []
    notes += [f"kv: {kv.reason}"] if kv.reason else []
    dense, exact = counts.matmul_flops, counts.matmul_flops_exact
    return Cost(workload, scope, name, dense, exact, weights, kv, counts.incomplete, tuple(notes))


def _on_source(workload: Workload) -> Workload:
    """The workload as an encoder sees it: its tokens are the source's."""
    return replace(workload, tokens=workload.source, context=workload.source)


def _own(module: nn.Module) -> nn.Module:
    """The layer of a block module without what belongs to the model."""
    return module.block if isinstance(module, BlockModule) else module


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _shared(model: Model) -> int:
    """Parameters that stand in two places and count once: a tied head's table, weights under two names."""
    everywhere = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))
    tied = model.head.tied[0] if isinstance(model.head, LmHead) else None
    return everywhere - _numel(model) + (0 if tied is None else _numel(tied))


def _weight_bytes(module: nn.Module, dtype: torch.dtype, workload: Workload) -> int:
    """Bytes of the weights: those of the module's own dtype as `weight_dtype` says, others as they are."""
    stored = STORED_BYTES[workload.weight_dtype or workload.dtype]
    return sum(p.numel() * (stored if p.dtype == dtype else p.itemsize) for p in module.parameters())
