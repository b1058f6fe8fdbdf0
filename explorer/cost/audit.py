"""Whether what is reported of a model, or of a block, is what one pass of the whole shows, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from torch import nn

from explorer.assembly.model import BlockModule, Model
from explorer.cost.costs import Cost, Params
from explorer.cost.ledger.rows import Counts
from explorer.cost.memory.memory import Need, memory, weight_bytes
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.observing import last_layers, step_of, summed
from explorer.cost.parts.part import Role
from explorer.cost.parts.subject import Subject
from explorer.cost.parts.tape import Entry, addition
from explorer.cost.parts.walk import walk
from explorer.cost.parts.whole import Whole, run_whole
from explorer.cost.stored import parameters_of

ALL = "all"
"""What stands in the place of a part where a number is of all parts of a scope."""


@dataclass(frozen=True)
class Mismatch:
    """A number of a scope, as it was reported or summed and as the whole has it.

    part: of which it is, "" for what stands between parts, `ALL` for all of them.
    """

    scope: str
    name: str
    part: str
    number: str
    summed: object
    whole: object

    def __str__(self) -> str:
        part = self.part or "between parts"
        return f"{part}: {self.number} {self.summed} as a sum of parts, {self.whole} in a whole pass"


def audit(costs: Sequence[Cost], params: Params, subject: Subject, observations: Observations) -> list[Mismatch]:
    """What differs between what was reported and a pass of the whole module, built anew; nothing should.

    costs: of one workload: those of a model and its blocks, or that of a block alone, which is the subject. Each part
    is compared; then, as sums of those parts, the counts and the cache of each cost, and parameters and all that
    follows from them against the modules that were built. Not compared: active parameters, what memory holds besides
    weights, gradients and optimizer, and how a cache grows.

    Raises: what `count` raises.
    """
    workload = costs[0].workload
    step = step_of(subject, workload.of_source() if subject.of is not None and subject.of.in_encoder else workload)
    whole = run_whole(subject.plan, subject.of, subject.dtype, step, observations.rules)
    entries = _inside(subject, walk(subject, step, observations).entries)
    scope = _Scope("model", "model") if subject.of is None else _Scope("block", subject.of.label)
    found = list(scope.of_parts(by_part(entries), _without_outside(subject, whole.parts)))
    found += scope.numbers({"kv_cache_bytes": (_cache_bytes(entries), whole.cache_bytes)})
    of_blocks = {scope.name: entries} if subject.of is not None else last_layers(entries)
    for cost in costs:
        if cost.counts is not None:
            here = _Scope(cost.scope, cost.name)
            found += here.of_cost(cost, entries if cost.scope == "model" else of_blocks.get(cost.name, ()))
            found += here.of_weights(cost, params, _held(subject, whole, cost))
    return found


@dataclass(frozen=True)
class _Scope:
    """Compares numbers of a model or of one block."""

    kind: str
    name: str

    def of_parts(self, summed: Mapping[str, Counts], whole: Mapping[str, Counts]) -> Iterator[Mismatch]:
        for part in {**summed, **whole}:
            yield from self._counts(part, summed.get(part, Counts()), whole.get(part, Counts()))

    def of_cost(self, cost: Cost, entries: Sequence[Entry]) -> Iterator[Mismatch]:
        """A cost as it was reported, against the sum of parts, each of which was compared."""
        seen = summed(entries)
        yield from self._counts(ALL, cost.counts or Counts(), seen.counts)
        for kind in {**cost.by_kind, **seen.by_kind}:
            both = (kinds.get(kind, Counts()) for kinds in (cost.by_kind, seen.by_kind))
            yield from self._counts(f"{ALL} {kind}", *both)
        if cost.kv.cache is not None:
            yield from self.numbers({"kv_cache_bytes": (cost.kv.cache, seen.cache_bytes)})

    def of_weights(self, cost: Cost, params: Params, module: nn.Module) -> Iterator[Mismatch]:
        """Parameters, and the bytes that follow from them."""
        held, workload = parameters_of(module), cost.workload
        blocks = {block.name: block.params for block in params.blocks}
        said = params.model if cost.scope == "model" else blocks[cost.name]
        yield from self.numbers(
            {"params": (said, held.total()), "weight_bytes": (cost.weight_bytes, weight_bytes(workload, held))}
        )
        if cost.memory is not None:
            own, built = asdict(cost.memory), asdict(memory(workload, held, Need(0)))
            names = ("weights", "gradients", "optimizer")
            yield from self.numbers({f"memory.{name}": (own[name], built[name]) for name in names})

    def numbers(self, pairs: Mapping[str, tuple[object, object]], part: str = ALL) -> Iterator[Mismatch]:
        for number, (one, other) in pairs.items():
            if one != other:
                yield Mismatch(self.kind, self.name, part, number, one, other)

    def _counts(self, part: str, summed: Counts, whole: Counts) -> Iterator[Mismatch]:
        names = [field.name for field in fields(Counts) if field.name not in ("exact_reason", "incomplete")]
        pairs = {name: (getattr(summed, name), getattr(whole, name)) for name in names}
        incomplete = sorted(summed.incomplete), sorted(whole.incomplete)
        return self.numbers({**pairs, "incomplete": incomplete}, part)


def by_part(entries: Iterable[Entry]) -> dict[str, Counts]:
    """The sums of a tape under the labels that a whole pass has."""
    found: dict[str, Counts] = {}
    for entry in entries:
        label = entry.part.role.label
        found[label] = found.get(label, Counts()) + entry.observation.total(entry.grads)
        for join in entry.weight_joins:  # by the backward of the part, which has them as its own
            found[label] += addition(*join)
        for join in entry.joins:
            found[""] = found.get("", Counts()) + addition(*join)
    return found


def _inside(subject: Subject, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Of a block alone without where its state is entered and left, which belongs to a model."""
    return [entry for entry in entries if subject.of is None or entry.part.role.layer is not None]


def _without_outside(subject: Subject, parts: Mapping[str, Counts]) -> Mapping[str, Counts]:
    if subject.of is None:
        return parts
    outside = {Role(subject.of.stack.name, name).label for name in ("enter", "leave")}
    return {part: counts for part, counts in parts.items() if part not in outside}


def _cache_bytes(entries: Iterable[Entry]) -> int:
    return sum(entry.observation.cache_bytes for entry in entries)


def _held(subject: Subject, whole: Whole, cost: Cost) -> nn.Module:
    """The module whose parameters are those of a scope: the model, or the last layer of a block."""
    module = whole.module
    if isinstance(module, BlockModule):
        return module.block
    assert isinstance(module, Model), module
    if cost.scope == "model":
        return module
    stacks = (stack for stack in (module.encoder, module.stack) if stack is not None)
    for stack, plan in zip(stacks, subject.plan.stacks, strict=True):
        layers = {plan.label(name): layer for name, layer in zip(plan.layers, stack.layers, strict=True)}
        if cost.name in layers:
            return layers[cost.name]
    raise AssertionError(f"no layer is of {cost.name}")
