"""What an unquoted word of YAML means: the YAML 1.2 core schema, minus everything that YAML 1.1 reads differently.

PyYAML's own resolver is YAML 1.1, where `1e-5` is text, `0512` is 330, `1:30` is 90 and `off` is false.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from explorer.blueprint.tree import Scalar, unusable
from explorer.errors import hints


@dataclass(frozen=True)
class Refusal:
    """Why a word is no value, and what to write instead."""

    message: str
    hints: tuple[str, ...] = ()


def resolve(text: str) -> Scalar | Refusal:
    """The value of an unquoted word. What no rule knows is text."""
    if text in _WORDS:
        return _WORDS[text]
    for pattern, value in _RULES:
        if pattern.fullmatch(text):
            return value(text)
    return text


def _integer(text: str) -> int | Refusal:
    if len(text) > 100:  # int() itself stops at 4300 digits
        return Refusal(f"an integer of {len(text)} characters is too large")
    value = int(text, 0) if text.startswith("0") else int(text)
    refusal = unusable(value)
    return Refusal(refusal) if refusal else value


def _float(text: str) -> float | Refusal:
    value = float(text)
    if math.isinf(value):
        return Refusal(f"{_short(text)} overflows to infinity", ("the largest number is 1.8e308",))
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        return Refusal(f"{_short(text)} underflows to zero", ("write 0, or at least 1e-307",))
    return value


def _not_finite(text: str) -> Refusal:
    return Refusal(f"{text} is not a finite number", (_quote(text),))


def _leading_zeros(text: str) -> Refusal:
    decimal = _LEADING_ZEROS.sub(r"\1\2", text)
    octal = re.fullmatch("0+[1-7][0-7]*", text)
    hint = f"write {decimal}, or 0o{decimal} for octal" if octal else f"write {decimal}"
    return Refusal(f"{_short(text)} has leading zeros, which YAML 1.1 reads as octal", (hint, _quote(text)))


def _base_60(text: str) -> Refusal:
    hint = "write it in decimal, or as key: value with a space after the colon"
    return Refusal(f"{_short(text)} is a base-60 number in YAML 1.1", (hint, _quote(text)))


def _boolean_1_1(text: str) -> Refusal:
    meaning = "true" if text.lower() in {"yes", "on"} else "false"
    nothing = "where a component is named, none means no component" if meaning == "false" else None
    message = f"{text} means {meaning} in YAML 1.1 and is a word in YAML 1.2"
    return Refusal(message, hints(f'write {meaning}; a name must be quoted: "{text}"', nothing))


def _quote(text: str) -> str:
    return f'as text it must be quoted: "{_short(text)}"'


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

_LEADING_ZEROS = re.compile(r"([-+]?)0+([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)")

_RULES: tuple[tuple[re.Pattern[str], Callable[[str], Scalar | Refusal]], ...] = (
    (_LEADING_ZEROS, _leading_zeros),
    (re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), _integer),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), _float),
    (re.compile(r"(?i:[-+]?\.(?:inf|nan))"), _not_finite),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), _base_60),
    (re.compile("yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"), _boolean_1_1),
)
