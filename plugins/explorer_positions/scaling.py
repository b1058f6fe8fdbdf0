"""What may be written for `scaling` of a rotary position: one form with its numbers, ``{linear: {factor: 8}}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from explorer import Value
from explorer_positions.scaled import Linear, Llama3, YaRN

Form = YaRN | Llama3 | Linear
_FORMS: Mapping[str, type[Form]] = {"yarn": YaRN, "llama3": Llama3, "linear": Linear}


@dataclass(frozen=True)
class _Key:
    """What may stand behind a key."""

    text: str
    schema: Mapping[str, Any]
    allows: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FACTOR = _Key("a number of at least 1", {"type": "number", "minimum": 1}, lambda v: _is_number(v) and v >= 1)
_TOKENS = _Key("a whole number of at least 1", {"type": "integer", "minimum": 1}, lambda v: type(v) is int and v >= 1)
_ABOVE_0 = _Key("a number above 0", {"type": "number", "exclusiveMinimum": 0}, lambda v: _is_number(v) and v > 0)
_OFF_OR_ABOVE_0 = _Key(
    "a number above 0 or null",
    {"anyOf": [_ABOVE_0.schema, {"type": "null"}]},
    lambda v: v is None or _ABOVE_0.allows(v),
)
_FLAG = _Key("true or false", {"type": "boolean"}, lambda v: isinstance(v, bool))
_KEYS: Mapping[str, _Key] = {  # the same in every form that has it
    "factor": _FACTOR,
    "original": _TOKENS,
    "low": _ABOVE_0,
    "high": _ABOVE_0,
    "attention_factor": _OFF_OR_ABOVE_0,
    "beta_fast": _ABOVE_0,
    "beta_slow": _ABOVE_0,
    "truncate": _FLAG,
}


def _written(key: Field[Any]) -> str:
    return key.name if _is_required(key) else f"{key.name}: {json.dumps(key.default)}"


def _is_required(key: Field[Any]) -> bool:
    return key.default is MISSING


@dataclass(frozen=True)
class Scaling(Value):
    """Frequencies for texts longer than those of the training, by one of three forms."""

    form: Form

    keys: ClassVar[tuple[str, ...]] = tuple(_KEYS)
    text: ClassVar[str] = " or ".join(
        f"{{{name}: {{{', '.join(map(_written, fields(form)))}}}}}" for name, form in _FORMS.items()
    )

    @classmethod
    def parse(cls, value: Any) -> Scaling:
        names = list(value) if isinstance(value, dict) else []
        if len(names) != 1 or names[0] not in _FORMS:
            raise ValueError(f"scaling is one of {', '.join(_FORMS)}, such as {{linear: {{factor: 8}}}}, not {value!r}")
        ((name, numbers),) = value.items()
        if not isinstance(numbers, dict):
            raise ValueError(f"{name} needs a mapping of {_keys_text(name)}, not {numbers!r}")
        _check_keys(name, numbers)
        for key, number in numbers.items():
            if not _KEYS[key].allows(number):
                raise ValueError(f"{key} of {name} must be {_KEYS[key].text}, not {number!r}")
        return cls(_FORMS[name](**numbers))

    @classmethod
    def keys_of(cls, written: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(key.name for name in written for key in fields(_FORMS[name]))

    @classmethod
    def changed(cls, written: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
        return {name: {**numbers, key: value} for name, numbers in written.items()}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return {"anyOf": [_mapping({name: _form_schema(form)}, [name]) for name, form in _FORMS.items()]}

    @property
    def amplitude(self) -> float:
        """What cosines and sines are multiplied by."""
        return self.form.amplitude

    def of(self, frequency: Tensor, base: float) -> Tensor:
        """What stands for the frequencies base^(-2i / dims), (dims / 2,) in float32.

        Raises: ValueError for a base that the form cannot use.
        """
        return self.form.of(frequency, base)


def _check_keys(name: str, numbers: Mapping[str, Any]) -> None:
    """Raises: ValueError with one sentence on the keys that are unknown or missing."""
    known = {key.name: key for key in fields(_FORMS[name])}
    unknown = [repr(key) for key in numbers if key not in known]
    missing = [key.name for key in known.values() if _is_required(key) and key.name not in numbers]
    faults = [f"has no {', '.join(unknown)}"] * bool(unknown) + [f"lacks {', '.join(missing)}"] * bool(missing)
    if faults:
        raise ValueError(f"{name} {' and '.join(faults)}; it takes {_keys_text(name)}")


def _keys_text(name: str) -> str:
    return ", ".join(key.name + " (required)" * _is_required(key) for key in fields(_FORMS[name]))


def _form_schema(form: type[Form]) -> dict[str, Any]:
    properties = {key.name: dict(_KEYS[key.name].schema) for key in fields(form)}
    return _mapping(properties, [key.name for key in fields(form) if _is_required(key)])


def _mapping(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
