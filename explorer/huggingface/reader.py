"""A config as its family reads it: each field is asked for by name; what nobody asked for is a problem at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from explorer.errors import Problem, Where, did_you_mean, hints

T = TypeVar("T")
REQUIRED: Final[Any] = object()  # a default that there is not
LONGEST_SHOWN = 60
LARGEST = 1e300  # also keeps inf and nan out


@dataclass
class Findings:
    """What came up while a config was read: problems, and what a person should know about the blueprint.

    comments: {field of the blueprint: why it is so}. remarks: on the whole.
    """

    problems: list[Problem] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


class ConfigReader:
    """Reads one mapping of a config, and the mappings in it.

    A field with several names may be written under any of them. What cannot be read is noted and replaced by the
    default, so that one pass finds all problems. null is a value only where a method says so.

    places: of each path in the file. home: of what has no place.
    """

    def __init__(
        self, values: Mapping[str, Any], places: Mapping[str, Where], home: Where, findings: Findings, path: str = ""
    ):
        self.values, self.findings = values, findings
        self._places, self._home, self._path = places, home, path
        self._asked: set[str] = set()
        self._inner: dict[str, ConfigReader] = {}

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def whole(self, *names: str, default: int = REQUIRED, least: int = 1, most: int | None = None) -> int:
        text = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most:,}"
        rule = _Rule(text, lambda v: _is_whole(v) and v >= least and (most is None or v <= most))
        return self._read(names, rule, default, least)

    def optional_whole(self, *names: str, default: int | None = None) -> int | None:
        """A whole number, or None where null is written."""
        rule = _Rule("a whole number of at least 1, or null", lambda v: v is None or (_is_whole(v) and v >= 1))
        return self._read(names, rule, default, None)

    def number(self, *names: str, default: float = REQUIRED, least: float | None = None) -> float:
        """A number above 0 unless `least` says otherwise."""
        text = "a number above 0" if least is None else f"a number of at least {least:g}"
        rule = _Rule(text, lambda v: _is_number(v) and (v > 0 if least is None else v >= least))
        return self._read(names, rule, default, 1.0)

    def optional_number(self, *names: str, default: float | None = None) -> float | None:
        """A number above 0, or None where null is written."""
        rule = _Rule("a number above 0, or null", lambda v: v is None or (_is_number(v) and v > 0))
        return self._read(names, rule, default, None)

    def rate(self, *names: str, default: float = 0.0) -> float:
        """Of a dropout; null is 0."""
        rule = _Rule("a number from 0 to below 1", lambda v: v is None or (_is_number(v) and 0 <= v < 1))
        return self._read(names, rule, default, 0.0) or 0.0

    def flag(self, *names: str, default: bool = False) -> bool:
        """null is false."""
        rule = _Rule("true or false", lambda v: v is None or isinstance(v, bool))
        return bool(self._read(names, rule, default, False))

    def text(self, *names: str, default: str) -> str:
        return self._read(names, _Rule("a text", lambda v: isinstance(v, str)), default, "")

    def choice(self, *names: str, of: Mapping[str, T], default: str) -> T:
        """What stands for the text that is written."""
        rule = _Rule(f"one of {', '.join(of)}", lambda v: isinstance(v, str) and v in of)
        return of[self._read(names, rule, default, default)]

    def texts(self, name: str) -> list[str] | None:
        """null is None."""
        text = "a list of texts"
        rule = _Rule(text, lambda v: v is None or (isinstance(v, list) and all(isinstance(item, str) for item in v)))
        return self._read((name,), rule, None, None)

    def wholes(self, name: str) -> list[int] | None:
        """null is None."""
        rule = _Rule("a list of whole numbers", lambda v: v is None or (isinstance(v, list) and all(map(_is_whole, v))))
        return self._read((name,), rule, None, None)

    def nested(self, name: str) -> ConfigReader | None:
        """A mapping in this one; None where it is left out, null or empty."""
        rule = _Rule("a mapping", lambda v: v is None or isinstance(v, Mapping))
        values: Mapping[str, Any] | None = self._read((name,), rule, None, None)
        if not values:
            return None
        inner = ConfigReader(values, self._places, self._home, self.findings, f"{self._path}{name}.")
        return self._inner.setdefault(name, inner)

    def only(self, name: str, *allowed: Any, because: str = "no component has anything else") -> None:
        """Note a value that would make another model, and that no blueprint of this family says."""
        self._asked.add(name)
        if self.has(name) and not any(_same(self.values[name], value) for value in allowed):
            valid = " or ".join(map(shown, allowed))
            self.problem(name, f"{shown(self.values[name])} is not supported, only {valid}: {because}")

    def derived(self, name: str, value: Any) -> None:
        """A field that follows from others: it must say the same."""
        self.only(name, value, because="other fields say so")

    def ignore(self, *names: str) -> None:
        """Fields that this family's model does not read."""
        self._asked.update(names)

    def problem(self, name: str, message: str, *lines: str | None) -> None:
        path = f"{self._path}{name}"
        where = self._places.get(path, self._home)
        self.findings.problems.append(Problem(where, path, message, hints(*lines)))

    def comment(self, field_name: str, text: str) -> None:
        self.findings.comments[field_name] = text

    def remark(self, text: str) -> None:
        self.findings.remarks.append(text)

    def finish(self, inert: frozenset[str], off: Mapping[str, Any]) -> None:
        """Note every field that nobody asked for and that may change the architecture.

        inert: fields that do not. off: fields that do not with this value.
        """
        for name, value in off.items():
            if name not in self._asked:
                self.only(name, value)
        for name in [name for name in self.values if name not in self._asked | inert]:
            message = f"{shown(self.values[name])} is not understood: it may change the architecture"
            self.problem(name, message, did_you_mean(name, self._asked - self.values.keys()))
        for inner in self._inner.values():
            inner.finish(inert, off)

    def _read(self, names: Sequence[str], rule: _Rule, default: Any, stand_in: Any) -> Any:
        self._asked.update(names)
        written = [name for name in names if name in self.values]
        if not written:
            if default is REQUIRED:
                self.problem(names[0], f"is missing: {rule.text}")
            return stand_in if default is REQUIRED else default
        for name in written:
            if not rule.allows(self.values[name]):
                self.problem(name, f"must be {rule.text}, not {shown(self.values[name])}")
                return stand_in if default is REQUIRED else default
        first, *others = (self.values[name] for name in written)
        for name, value in zip(written[1:], others, strict=True):
            if value != first:
                self.problem(name, f"{shown(value)} is not the {shown(first)} of {written[0]}, which says the same")
        return first


@dataclass(frozen=True)
class _Rule:
    """What a field may hold."""

    text: str
    allows: Callable[[Any], bool]


def shown(value: Any) -> str:
    """A value as JSON writes it, cut where it is long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _same(value: Any, allowed: Any) -> bool:
    return type(value) is type(allowed) and bool(value == allowed) if isinstance(allowed, bool) else value == allowed
