"""What one workload shows of a model and its blocks, or of a block alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from explorer.assembly.construction import dtype_of
from explorer.blueprint.plan import block_label
from explorer.blueprint.workload import Workload
from explorer.cost.ledger.rows import Counts
from explorer.cost.parts.failures import understood
from explorer.cost.parts.observation import Grads, Held, Observation, Observations, Step
from explorer.cost.parts.part import Role
from explorer.cost.parts.subject import Subject
from explorer.cost.parts.tape import Entry, Joined, addition
from explorer.cost.parts.walk import walk


@dataclass(frozen=True)
class Seen:
    """Sums over the parts of one pass, and the bytes in the cache after it.

    by_kind: the same sums by what the parts are. spread: least and most matmul_flops of a block's layers, where they
    differ.
    """

    counts: Counts
    cache_bytes: int
    by_kind: Mapping[str, Counts]
    spread: tuple[int, int] | None = None


@dataclass(frozen=True)
class Observed:
    """whole: of the subject. layers: of the last layer of each block that ran. failure: why there is neither.

    entries: the parts of the pass, in order.
    """

    whole: Seen | None = None
    layers: Mapping[str, Seen] = field(default_factory=dict)
    failure: str | None = None
    entries: Sequence[Entry] = ()


def observe(subject: Subject, workload: Workload, observations: Observations) -> Observed:
    """One settled workload on a subject; train is forward and backward.

    Raises: PluginError where a component's code fails.
    """
    if reason := unseen(subject, workload):
        return Observed(failure=reason)
    with understood(subject.label) as trouble:
        entries = walk(subject, step_of(subject, workload), observations).entries
        blocks = {block: _of_layers(layers) for block, layers in _by_layer(entries).items()}
        return Observed(summed(entries), blocks, entries=entries)
    return Observed(failure=trouble.reason)


def last_layers(entries: Iterable[Entry]) -> dict[str, Sequence[Entry]]:
    """The parts of the last layer of each block, by its label."""
    return {block: layers[-1] for block, layers in _by_layer(entries).items()}


def _by_layer(entries: Iterable[Entry]) -> dict[str, list[list[Entry]]]:
    """The parts of each layer of each block, by the label of the block."""
    layers: dict[tuple[str, str], dict[int, list[Entry]]] = {}
    for entry in entries:
        role = entry.part.role
        if role.layer is not None:
            layers.setdefault((role.stack, role.block), {}).setdefault(role.layer, []).append(entry)
    return {block_label(*block): list(of.values()) for block, of in layers.items()}


def step_of(subject: Subject, workload: Workload) -> Step:
    """The pass that a settled workload asks for."""
    batch, tokens, context = workload.batch, length(workload.tokens), length(workload.context)
    source = workload.source if subject.reads_source else None
    if workload.phase == "train":
        return Step(batch, tokens, source, train=True)
    if not subject.caches:
        return Step(batch, tokens, source)
    assert workload.kv_dtype is not None, workload
    # With tokens held, and for a decode step in any case, the source's keys and values stand in the cache.
    there = context > tokens or workload.phase == "decode"
    held = Held(batch, context - tokens, context, dtype_of(workload.kv_dtype), source if there else None)
    return Step(batch, tokens, None if there else source, held=held)


def unseen(subject: Subject, workload: Workload) -> str | None:
    """Why a step that needs a cache cannot be observed without one."""
    needs = length(workload.context) > length(workload.tokens)
    needs |= workload.phase == "decode" and subject.reads_source
    if not needs or subject.caches:
        return None
    return f"what it computes over a cache: {subject.module.stack.intake.limits.get('cache', 'it keeps none')}"


def _of_layers(layers: Sequence[Sequence[Entry]]) -> Seen:
    """The last layer, and how far the layers differ."""
    products = {sum(entry.matmul_flops for entry in layer) for layer in layers}
    return summed(layers[-1], (min(products), max(products)) if len(products) > 1 else None)


def summed(entries: Iterable[Entry], spread: tuple[int, int] | None = None) -> Seen:
    """The sums over some parts. spread: see `Seen`."""
    sums = _Sums()
    for entry in entries:
        sums.add(entry)
    by_kind = sums.by_kind()
    return Seen(sum(by_kind.values(), Counts()), sums.cache_bytes, by_kind, spread)


@dataclass
class _Sums:
    """Calls that are the same are added up once, times their number."""

    calls: Counter[tuple[str, int, Grads | None]] = field(default_factory=Counter)
    joins: Counter[Joined] = field(default_factory=Counter)
    cache_bytes: int = 0
    _observations: dict[int, Observation] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        seen = entry.observation
        self._observations[id(seen)] = seen
        self.calls[kind_of(entry.part.role), id(seen), entry.grads] += 1
        self.joins.update([*entry.joins, *entry.weight_joins])
        self.cache_bytes += seen.cache_bytes

    def by_kind(self) -> dict[str, Counts]:
        found: dict[str, Counts] = {}
        for (kind, seen, grads), times in self.calls.items():
            counts = self._observations[seen].total(grads) * times
            found[kind] = found.get(kind, Counts()) + counts
        for join, times in self.joins.items():
            found["residual"] = found.get("residual", Counts()) + addition(*join) * times
        return {kind: counts for kind, counts in found.items() if counts != Counts()}


_KINDS = {
    **dict.fromkeys(("norm", "norm_out", "norm_post", "final_norm"), "norm"),
    **dict.fromkeys(("enter", "read", "write", "leave", "sum"), "residual"),
    "embed": "embedding",
    "head": "head",
    "loss": "loss",
}


def kind_of(role: Role) -> str:
    """What a part counts as in a breakdown: embedding, norm, attention, feedforward, residual, head or loss.

    Dropout counts with the sublayer whose output it acts on, an addition of gradients as residual.
    """
    if role.name in ("branch", "dropout"):
        return "attention" if role.sublayer == "cross_attention" else role.sublayer
    return _KINDS[role.name]


def length(value: int | None) -> int:
    """A length that a settled workload has."""
    assert value is not None, "an unsettled workload"
    return value
