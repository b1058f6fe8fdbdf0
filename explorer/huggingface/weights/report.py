"""What came of a state dict: which of our tensors got values, and what did not fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from explorer.errors import UsageError

Shape = tuple[int, ...]
_LINES, _NAMES = 12, 4


@dataclass(frozen=True)
class Missing:
    """A tensor of ours that got nothing. theirs: the names that were looked for and not found."""

    ours: str
    theirs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.ours}: " + (f"no {_some(self.theirs)}" if self.theirs else "no name of theirs is known")


@dataclass(frozen=True)
class Mismatch:
    """A tensor of ours whose values are there and do not fit. theirs: their shapes. reason: why, with both sides."""

    ours: str
    shape: Shape
    theirs: Mapping[str, Shape]
    reason: str

    def __str__(self) -> str:
        theirs = [f"{name} {shape}" for name, shape in self.theirs.items()]
        return f"{self.ours} {self.shape}: {self.reason}, from {_some(theirs)}"


@dataclass(frozen=True)
class Report:
    """family: whose names the state dict has.

    loaded: our tensors that got values. missing: those for which there is nothing. shapes: those whose values are there
    and do not fit, by their shape, dtype or layout, or because the state dict has two tables where the model has one.
    unexpected: tensors of theirs that nothing took. ignored: others that nothing needs (masks, frequencies, a second
    name of a tied table, heads of a model without head, modules that predict a further token).
    """

    family: str
    loaded: tuple[str, ...]
    missing: tuple[Missing, ...]
    unexpected: tuple[str, ...]
    shapes: tuple[Mismatch, ...]
    ignored: tuple[str, ...]

    @property
    def problems(self) -> int:
        return len(self.missing) + len(self.unexpected) + len(self.shapes)

    def __str__(self) -> str:
        sections = (
            ("missing, tensors of the model that got nothing", self.missing),
            ("unexpected, tensors of the state dict that nothing takes", self.unexpected),
            ("not fitting, tensors of the model that theirs do not fit", self.shapes),
        )
        lines = [f"names of {self.family}: {len(self.loaded)} tensors of the model fit"]
        for title, found in sections:
            if found:
                lines += [f"{title} ({len(found)}):", *_listed([str(each) for each in found])]
        return "\n".join(lines)


class WeightsError(UsageError):
    """A state dict does not fit the model; nothing was loaded. report: all of it."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(
            f"the state dict does not fit the model, nothing was loaded; {report}\n`strict=False` loads what fits"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")


def _listed(found: Sequence[str]) -> Iterator[str]:
    """Those that differ in their numbers only as one line, and not more lines than one reads."""
    general = [re.sub(r"\.\d+(?=[.\s:,]|$)", ".*", line) for line in found]
    first = dict(zip(reversed(general), reversed(found), strict=True))
    groups = Counter(general)
    for line, count in list(groups.items())[:_LINES]:
        yield f"  {first[line]}" if count == 1 else f"  {line} ({count} of these)"
    if len(groups) > _LINES:
        yield f"  and {len(groups) - _LINES} more kinds"
