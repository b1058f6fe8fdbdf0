"""What a plan costs: parameters, operations, traffic, cache and weights of its blocks and of the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from explorer.assembly.block import Block
from explorer.assembly.head import LmHead
from explorer.assembly.model import Model
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import DEFAULT_TOKENS, Workload
from explorer.cost.costs import BlockParams, Cost, Counted, KvBytes, Params
from explorer.cost.growth import Growth, Growths, Rate
from explorer.cost.ledger.rows import Counts
from explorer.cost.memory.footprint import Footprints
from explorer.cost.memory.memory import Need, memory, weight_bytes
from explorer.cost.memory.needs import Needed, needed
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.observing import Observed, Seen, observe
from explorer.cost.parts.subject import (
    BlockName,
    Holdings,
    Subject,
    Subjects,
    blocks_of,
    holdings,
    layer_holdings,
    longest,
    numel,
)
from explorer.cost.parts.workshop import Workshop
from explorer.cost.usage import Usages
from explorer.errors import RefusedError, UsageError


@dataclass
class Workbench:
    """What was built and seen so far: plans that have parts in common pay for each part once."""

    observations: Observations = field(default_factory=Observations)
    footprints: Footprints = field(default_factory=Footprints)
    growths: Growths = field(default_factory=Growths)
    usages: Usages = field(default_factory=Usages)
    workshops: dict[str, Workshop] = field(default_factory=dict)


def count(
    plan: ModelPlan, workloads: Sequence[Workload], default: int = DEFAULT_TOKENS, bench: Workbench | None = None
) -> Counted:
    """Count a plan on meta, for each workload its blocks and, where the plan is a whole model, the model.

    default: tokens of a workload that writes none. bench: of plans counted before.

    Raises: RefusedError where a component or the combination refuses, or a workload cannot run on the plan; PluginError
    where a component's code fails.
    """
    bench = bench or Workbench()
    counter = _Counter(plan, Subjects(plan, bench.workshops), blocks_of(plan), bench)
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
    bidirectional = any(not block.caches for block in blocks_of(plan) if block.stack is plan.stack)
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
    blocks: tuple[BlockName, ...]
    bench: Workbench
    _growths: dict[tuple[str, str], Growth | str] = field(default_factory=dict)

    def params(self) -> Params:
        blocks = tuple(BlockParams(block.label, block.layers, self._layer(block).params) for block in self.blocks)
        if self.plan.whole:
            subject = self.subjects.model()
            held = holdings(subject)
            return Params(blocks, held.params, *self._active(subject), held.repeated + _tied(subject))
        if len(self.blocks) > 1:
            return Params(blocks, None, None, "there are several blocks and no model: write `layers`", 0)
        return Params(blocks, None, *self._active(self.subjects.block(self.blocks[0])), 0)

    def costs(self, workload: Workload) -> Iterator[Cost]:
        if not self.plan.whole:
            yield from (self._block_alone(block, workload) for block in self.blocks)
            return
        subject = self.subjects.model(workload.dtype)
        observed = observe(subject, workload, self.bench.observations)
        needs = needed(observed.entries, self.bench.footprints, workload.recompute, whole=True)
        for block in self.blocks:
            yield self._block(block, subject, workload, observed, needs)
        kv = self._kv(subject, workload, observed, observed.whole)
        cost = _cost(workload, "model", "model", holdings(subject), observed, kv, None)
        yield _with_memory(cost, holdings(subject), needs.whole, needs)

    def _active(self, subject: Subject) -> tuple[int | None, str | None]:
        return self.bench.usages.of(subject, self.bench.observations)

    def _block_alone(self, block: BlockName, workload: Workload) -> Cost:
        """A block of which there is no model around it."""
        subject = self.subjects.block(block, workload.dtype)
        if block.in_encoder and workload.source_is_cached:
            return self._block(block, subject, workload, Observed(), Needed())
        workload_here = workload.of_source() if block.in_encoder else workload
        observed = observe(subject, workload_here, self.bench.observations)
        needs = needed(observed.entries, self.bench.footprints, workload.recompute, whole=False)
        return self._block(block, subject, workload, observed, needs)

    def _block(self, block: BlockName, subject: Subject, workload: Workload, observed: Observed, needs: Needed) -> Cost:
        """A block's last layer, in the pass of the subject that holds it."""
        held = self._layer(block, workload.dtype)
        if block.in_encoder and workload.source_is_cached:
            # The encoder does not run: what it made stands in the decoder's cache.
            weights = weight_bytes(workload, held.stored)
            idle = Cost(workload, "block", block.label, Counts(), weights, KvBytes(0, 0, 0))
            return replace(idle, memory=memory(workload, held.stored, Need(0)))
        seen = observed.layers.get(block.label)
        if seen is None and observed.failure is None:
            seen = Seen(Counts(), 0, {})  # its layers hold no sublayer
        kv = KvBytes(0, 0, 0) if not block.caches else self._kv(subject, workload, observed, seen, block.label)
        cost = _cost(workload, "block", block.label, held, observed, kv, seen)
        return _with_memory(cost, held, needs.layers.get((block.stack.name, block.name), Need(0)), needs)

    def _layer(self, block: BlockName, dtype: str = "bfloat16") -> Holdings:
        """The last layer of a block, without what belongs to the model."""
        if not self.plan.whole:
            return holdings(self.subjects.block(block, dtype))
        subject = self.subjects.model(dtype)
        stack = subject.stacks[0] if block.in_encoder else subject.stacks[-1]
        names = block.stack.layers
        layer = stack.layers[len(names) - 1 - names[::-1].index(block.name)]
        assert isinstance(layer, Block), layer
        return Holdings.of([layer]) if subject.entangled else layer_holdings(layer)

    def _kv(
        self, subject: Subject, workload: Workload, observed: Observed, seen: Seen | None, label: str | None = None
    ) -> KvBytes:
        """Cache bytes of the subject, or of the last layer of one of its blocks."""
        if seen is None:
            return KvBytes(None, None, None, observed.failure)
        limits = subject.module.stack.intake.limits
        if not subject.caches and any(block.caches for block in self.blocks) and "cache" in limits:
            return KvBytes(None, None, None, limits["cache"])
        grown = self._growth(subject, workload)
        if isinstance(grown, str):
            return KvBytes(None, None, None, grown)
        rate = grown.whole if label is None else grown.layers.get(label, Rate())
        return KvBytes(*rate.numbers(), seen.cache_bytes)

    def _growth(self, subject: Subject, workload: Workload) -> Growth | str:
        assert workload.kv_dtype is not None, workload
        key = subject.label, workload.kv_dtype
        if key not in self._growths:
            table = longest(self.plan).get(self.plan.stack.name)
            bench = self.bench
            self._growths[key] = bench.growths.of(subject, workload.kv_dtype, table, bench.observations)
        return self._growths[key]


def _cost(
    workload: Workload, scope: str, name: str, held: Holdings, observed: Observed, kv: KvBytes, block: Seen | None
) -> Cost:
    seen, weights = block or observed.whole, weight_bytes(workload, held.stored)
    if seen is None or observed.failure:
        return Cost(workload, scope, name, None, weights, kv, notes=(f"matmul_flops: {observed.failure}",))
    reason = seen.counts.exact_reason
    notes = [f"matmul_flops_exact: {reason}"] if reason else []
    notes += [f"kv: {kv.reason}"] if kv.reason else []
    return Cost(workload, scope, name, seen.counts, weights, kv, seen.by_kind, tuple(notes), seen.spread)


def _tied(subject: Subject) -> int:
    """Parameters of an input table that is the head's too, and counts once."""
    head = subject.module.head if isinstance(subject.module, Model) else None
    table = head.tied[0] if isinstance(head, LmHead) else None
    return 0 if table is None else numel(table)


def _with_memory(cost: Cost, held: Holdings, need: Need | None, needs: Needed) -> Cost:
    """The cost with its memory, or with the reason why that is not known."""
    if cost.counts is None:
        return cost
    if need is None or needs.failure:
        return replace(cost, notes=(*cost.notes, f"memory: {needs.failure}"))
    return replace(cost, memory=memory(cost.workload, held.stored, need))
