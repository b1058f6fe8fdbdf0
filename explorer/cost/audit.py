"""Whether the sum over parts is what one pass of the whole model shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from explorer.cost.costs import Cost
from explorer.cost.ledger.rows import Counts
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.observing import step_of
from explorer.cost.parts.part import Role
from explorer.cost.parts.subject import Subject
from explorer.cost.parts.tape import Entry, addition
from explorer.cost.parts.walk import walk
from explorer.cost.parts.whole import trace_whole


@dataclass(frozen=True)
class Mismatch:
    """A number of a part, by the sum and by the whole. part: "" for what stands between parts."""

    part: str
    number: str
    summed: object
    whole: object

    def __str__(self) -> str:
        part = self.part or "between parts"
        return f"{part}: {self.number} {self.summed} as a sum of parts, {self.whole} in a whole pass"


def audit(cost: Cost, subject: Subject, observations: Observations) -> list[Mismatch]:
    """What differs between a reported cost and a pass of the whole module, built anew; nothing should.

    subject: the model, or the block alone, of which the cost is. Where the sums differ the parts are named.
    Raises: what `count` raises.
    """
    workload = cost.workload.of_source() if subject.of is not None and subject.of.in_encoder else cost.workload
    step = step_of(subject, workload)
    whole = trace_whole(subject.plan, subject.of, subject.dtype, step, observations.rules)
    if subject.of is not None:  # where the state is entered and left belongs to a model
        outside = {Role(subject.of.stack.name, name).label for name in ("enter", "leave")}
        whole = {part: counts for part, counts in whole.items() if part not in outside}
    if cost.counts is not None and not list(_differences("", cost.counts, sum(whole.values(), Counts()))):
        return []
    entries = walk(subject, step, observations).entries
    summed = by_part(entry for entry in entries if subject.of is None or entry.part.role.layer is not None)
    found = [difference for part in {**summed, **whole} for difference in _of_part(part, summed, whole)]
    return found or list(_differences("all", cost.counts or Counts(), sum(whole.values(), Counts())))


def _of_part(part: str, summed: Mapping[str, Counts], whole: Mapping[str, Counts]) -> Iterable[Mismatch]:
    return _differences(part, summed.get(part, Counts()), whole.get(part, Counts()))


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


def _differences(part: str, summed: Counts, whole: Counts) -> Iterable[Mismatch]:
    for field in fields(Counts):
        one, other = (getattr(counts, field.name) for counts in (summed, whole))
        if field.name == "incomplete":
            one, other = sorted(one), sorted(other)
        if field.name != "exact_reason" and one != other:
            yield Mismatch(part, field.name, one, other)
