"""Small written values with a structure of their own: ``hidden: 1376`` or ``hidden: {ratio: 8/3, multiple_of: 32}``."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

LARGEST_WIDTH = 2**24  # beyond any published model by 300x; products of three widths still fit in int64 with room
_FRACTION = "[0-9]{1,9}/[0-9]{1,9}"  # not what Fraction reads besides: the text 1e999999999 would take all memory


class Value(ABC):
    """A parameter that is more than a number: subclass it and annotate a keyword-only parameter with the subclass.

    ``parse`` gets the plain written value (scalar, list or dict) and raises ValueError with one sentence if it cannot
    be used; the constructor gets what it returns. A default in the signature is plain, too: ``hidden: Width = 64``.
    keys: what a path may set (``feedforward.hidden.multiple_of``). text: what may be written, in words.
    A value whose keys stand below the name of a form (``{linear: {factor: 8}}``) overrides ``keys_of`` and ``changed``:
    a path skips that name, as it skips the names of components (``position.scaling.factor``).
    """

    keys: ClassVar[tuple[str, ...]] = ()
    text: ClassVar[str]

    @classmethod
    @abstractmethod
    def parse(cls, value: Any) -> Value: ...

    @classmethod
    def keys_of(cls, written: Mapping[str, Any]) -> tuple[str, ...]:
        """What a path may set in a value that is written so."""
        return cls.keys

    @classmethod
    def changed(cls, written: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
        """What is written after a path has set one key."""
        return {**written, key: value}

    @classmethod
    @abstractmethod
    def schema(cls) -> dict[str, Any]:
        """JSON Schema of what may be written."""


def ratio_of(value: Any) -> Fraction:
    """A positive number or a fraction written as text (``8/3``), exactly.

    Raises: ValueError.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fraction = isinstance(value, str) and re.fullmatch(_FRACTION, value) is not None
    try:
        ratio = Fraction(str(value) if number or fraction else "")
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"ratio must be a number or a fraction such as 8/3, not {value!r}") from None
    if not 0 < ratio <= LARGEST_WIDTH:
        raise ValueError(f"ratio must be above 0 and at most {LARGEST_WIDTH}, not {value}")
    return ratio


@dataclass(frozen=True)
class Width(Value):
    """A width: a number, or floor(ratio * dim) rounded up to a multiple."""

    number: int | None = None
    ratio: Fraction = Fraction(1)
    multiple_of: int = 1

    keys: ClassVar[tuple[str, ...]] = ("ratio", "multiple_of")
    text: ClassVar[str] = "int >= 1 or {ratio: number or fraction, multiple_of: int >= 1}"

    @classmethod
    def parse(cls, value: Any) -> Width:
        if not isinstance(value, dict):
            return cls(number=_count("a width", value))
        unknown = sorted(set(value) - set(cls.keys), key=str)
        if unknown:
            raise ValueError(f"{unknown[0]!r} is unknown here; it takes ratio and multiple_of")
        if "ratio" not in value:
            raise ValueError("ratio is missing")
        return cls(ratio=ratio_of(value["ratio"]), multiple_of=_count("multiple_of", value.get("multiple_of", 1)))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        count = {"type": "integer", "minimum": 1, "maximum": LARGEST_WIDTH}
        ratio = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": f"^{_FRACTION}$"}]}
        mapping = {
            "type": "object",
            "properties": {"ratio": ratio, "multiple_of": count},
            "required": ["ratio"],
            "additionalProperties": False,
        }
        return {"anyOf": [count, mapping]}

    def of(self, dim: int) -> int:
        """The width for a block of width ``dim``.

        Raises: ValueError where nothing is left of it, or far too much.
        """
        if self.number is not None:
            return self.number
        wanted = math.floor(self.ratio * dim)
        if wanted < 1:
            raise ValueError(f"ratio {self.ratio} of dim {dim} leaves no width")
        width = -(-wanted // self.multiple_of) * self.multiple_of
        if width > LARGEST_WIDTH:
            raise ValueError(f"ratio {self.ratio} of dim {dim} is a width of {width}; the largest is {LARGEST_WIDTH}")
        return width


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if not 1 <= value <= LARGEST_WIDTH:
        raise ValueError(f"{name} must be from 1 to {LARGEST_WIDTH}, not {value}")
    return value
