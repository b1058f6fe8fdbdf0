"""Whether the sum over parts is what one pass of the whole model shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from explorer.assembly.construction import dtype_of
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.observation import Observations
from explorer.cost.observing import step_of
from explorer.cost.rows import Counts
from explorer.cost.subject import Subjects
from explorer.cost.tape import Entry, addition
from explorer.cost.walk import walk
from explorer.cost.whole import trace_whole


@dataclass(frozen=True)
class Mismatch:
    """A number of a part, by the sum and by the whole."""

    part: str
    number: str
    summed: object
    whole: object

    def __str__(self) -> str:
        part = self.part or "between parts"
        return f"{part}: {self.number} {self.summed} as a sum of parts, {self.whole} in a whole pass"


def audit(plan: ModelPlan, workload: Workload, observations: Observations, subjects: Subjects) -> list[Mismatch]:
    """What differs between the sum over parts and a pass of the whole model, built anew; nothing should.

    workload: settled. Raises: what `count` raises.
    """
    subject = subjects.model(workload.dtype)
    step = step_of(subject, workload)
    summed = by_part(walk(subject, step, observations).entries)
    whole = trace_whole(plan, dtype_of(workload.dtype), step, observations.rules)
    return list(_differences(summed, whole))


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


def _differences(summed: Mapping[str, Counts], whole: Mapping[str, Counts]) -> Iterable[Mismatch]:
    for part in dict.fromkeys([*summed, *whole]):
        one, other = summed.get(part, Counts()), whole.get(part, Counts())
        for field in fields(Counts):
            if field.name == "exact_reason":
                continue
            values = [getattr(counts, field.name) for counts in (one, other)]
            if field.name == "incomplete":
                values = [sorted(value) for value in values]
            if values[0] != values[1]:
                yield Mismatch(part, field.name, *values)
