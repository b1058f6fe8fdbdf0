"""What a plan costs: parameters, matrix products, cache and weight bytes of its blocks and of the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from explorer.assembly.head import LmHead
from explorer.assembly.model import BlockModule, Model
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import DEFAULT_TOKENS, STORED_BYTES, Workload
from explorer.cost.costs import BlockParams, Cost, Counted, KvBytes, Params
from explorer.cost.observing import Growth, Observed, Rate, Seen, growth, observe
from explorer.cost.parts import Part, Subjects, longest, parts_of
from explorer.cost.usage import active, numel
from explorer.cost.walk import Subject
from explorer.errors import RefusedError, UsageError


def count(plan: ModelPlan, workloads: Sequence[Workload], default: int = DEFAULT_TOKENS) -> Counted:
    """Count a plan on meta, for each workload its blocks and, where the plan is a whole model, the model.

    default: tokens of a workload that writes none.

    Raises: RefusedError where a component or the combination refuses, or a workload cannot run on the plan; PluginError
    where a component's code fails.
    """
    counter = _Counter(plan, Subjects(plan), parts_of(plan))
    settled = settle(plan, workloads, default)
    return Counted(counter.params(), tuple(cost for workload in settled for cost in counter.costs(workload)))


def settle(plan: ModelPlan, workloads: Sequence[Workload], default: int = DEFAULT_TOKENS) -> list[Workload]:
    """The workloads with the defaults they have on this plan.

    Raises: RefusedError for one that cannot run on it.
    """
    tables = longest(plan)
    encoder = plan.encoder is not None
    try:
        lengths = {"longest": tables.get(plan.stack.name), "longest_source": tables.get("encoder")}
        full = [workload.settled(**lengths, encoder=encoder, default=default) for workload in workloads]
    except UsageError as error:
        raise RefusedError(str(error)) from error
    bidirectional = any(not part.caches for part in parts_of(plan) if part.stack is plan.stack)
    if bidirectional and any(workload.source_is_cached for workload in full):
        raise RefusedError(
            "workload: decode, and tokens behind a context, need a causal stack; with `causal: false` nothing is cached"
        )
    return full


@dataclass
class _Counter:
    """Counts one plan."""

    plan: ModelPlan
    subjects: Subjects
    parts: tuple[Part, ...]
    _growths: dict[tuple[str, str], Growth | str] = field(default_factory=dict)

    def params(self) -> Params:
        blocks = tuple(BlockParams(part.label, part.layers, numel(self._layer(part))) for part in self.parts)
        if self.plan.whole:
            subject = self.subjects.model()
            assert isinstance(subject.module, Model), subject
            return Params(blocks, numel(subject.module), *active(subject), _shared(subject.module))
        if len(self.parts) > 1:
            return Params(blocks, None, None, "there are several blocks and no model: write `layers`", 0)
        return Params(blocks, None, *active(self.subjects.block(self.parts[0])), 0)

    def costs(self, workload: Workload) -> Iterator[Cost]:
        if not self.plan.whole:
            yield from (self._block_alone(part, workload) for part in self.parts)
            return
        subject = self.subjects.model(workload.dtype)
        observed = observe(subject, workload)
        for part in self.parts:
            yield self._block(part, subject, workload, observed)
        kv = self._kv(subject, workload, observed, observed.whole)
        yield _cost(workload, "model", "model", _weight_bytes(subject.module, subject, workload), observed, kv)

    def _block_alone(self, part: Part, workload: Workload) -> Cost:
        """A block of which there is no model around it."""
        subject = self.subjects.block(part, workload.dtype)
        runs = not (part.in_encoder and workload.source_is_cached)
        observed = observe(subject, workload.of_source() if part.in_encoder else workload) if runs else Observed()
        return self._block(part, subject, workload, observed)

    def _block(self, part: Part, subject: Subject, workload: Workload, observed: Observed) -> Cost:
        """A block's last layer, in the pass of the subject that holds it."""
        weights = _weight_bytes(self._layer(part, workload.dtype), subject, workload)
        if part.in_encoder and workload.source_is_cached:
            # The encoder does not run: what it made stands in the decoder's cache.
            return Cost(workload, "block", part.label, 0, 0, weights, KvBytes(0, 0, 0))
        seen = observed.layers.get(part.label)
        if not part.caches:
            kv = KvBytes(0, 0, 0)
        else:
            kv = self._kv(subject, workload, observed, seen, part.label)
        return _cost(workload, "block", part.label, weights, observed, kv, seen)

    def _layer(self, part: Part, dtype: str = "bfloat16") -> nn.Module:
        """The last layer of a block, without what belongs to the model."""
        if not self.plan.whole:
            block = self.subjects.block(part, dtype).module
            assert isinstance(block, BlockModule), block
            return block.block
        model = self.subjects.model(dtype).module
        stack = model.encoder if part.in_encoder and isinstance(model, Model) else model.stack
        assert stack is not None, part
        names = part.stack.layers
        return stack.layers[len(names) - 1 - names[::-1].index(part.name)]

    def _kv(
        self, subject: Subject, workload: Workload, observed: Observed, seen: Seen | None, label: str | None = None
    ) -> KvBytes:
        """Cache bytes of the subject, or of the last layer of one of its blocks."""
        if seen is None:
            return KvBytes(None, None, None, observed.failure)
        limits = subject.module.stack.intake.limits
        if not subject.caches and any(part.caches for part in self.parts) and "cache" in limits:
            return KvBytes(None, None, None, limits["cache"])
        grown = self._growth(subject, workload)
        if isinstance(grown, str):
            return KvBytes(None, None, None, grown)
        rate = grown.whole if label is None else grown.layers.get(label, Rate())
        return KvBytes(rate.opened, rate.full, seen.cache_bytes)

    def _growth(self, subject: Subject, workload: Workload) -> Growth | str:
        assert workload.kv_dtype is not None, workload
        key = subject.label, workload.kv_dtype
        if key not in self._growths:
            table = longest(self.plan).get(self.plan.stack.name)
            self._growths[key] = growth(subject, workload.kv_dtype, table)
        return self._growths[key]


def _cost(
    workload: Workload, scope: str, name: str, weights: int, observed: Observed, kv: KvBytes, block: Seen | None = None
) -> Cost:
    seen = block or observed.whole
    if seen is None or observed.failure:
        return Cost(workload, scope, name, None, None, weights, kv, notes=(f"matmul_flops: {observed.failure}",))
    counts = seen.counts
    notes = [f"matmul_flops_exact: {counts.exact_reason}"] if counts.exact_reason else []
    notes += [f"kv: {kv.reason}"] if kv.reason else []
    dense, exact = counts.matmul_flops, counts.matmul_flops_exact
    return Cost(workload, scope, name, dense, exact, weights, kv, counts.incomplete, tuple(notes), seen.spread)


def _shared(model: Model) -> int:
    """Parameters that stand in two places and count once: a tied head's table, weights under two names."""
    everywhere = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))
    tied = model.head.tied[0] if isinstance(model.head, LmHead) else None
    return everywhere - numel(model) + (0 if tied is None else numel(tied))


def _weight_bytes(module: nn.Module, subject: Subject, workload: Workload) -> int:
    """Bytes of the weights: those of the module's own dtype as `weight_dtype` says, others as they are."""
    stored = STORED_BYTES[workload.weight_dtype or workload.dtype]
    dtype: torch.dtype = subject.dtype
    return sum(p.numel() * (stored if p.dtype == dtype else p.itemsize) for p in module.parameters())
