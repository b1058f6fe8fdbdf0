"""Small values for the parameters of a constructor, made from its schema."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from explorer.errors import PluginError
from explorer.registry.parameters import Parameter, Schema
from explorer.registry.registry import Registry

# 2 first: with 1 of something (heads, experts) most mistakes do not show, and 2 divides what usually must divide.
_COUNTS = (2, 4, 8, 1, 16, 3)
_NUMBERS = (0.5, 1.0, 2.0)


def required_values(schema: Schema, registry: Registry) -> Iterator[dict[str, Any]]:
    """Combinations of small values for all required parameters, to be tried one after the other."""
    required = [parameter for parameter in schema.parameters.values() if parameter.required]
    options = [list(values_of(parameter, registry)) for parameter in required]
    for values in _nearest_first(options):
        yield {parameter.name: value for parameter, value in zip(required, values, strict=True)}


def _nearest_first(options: list[list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Their product, ordered by how many differ from their first option: constraints seldom join more than two."""
    for moved in range(len(options) + 1):
        for places in itertools.combinations(range(len(options)), moved):
            yield from itertools.product(*(o[1:] if i in places else o[:1] for i, o in enumerate(options)))


def other_settings(schema: Schema, registry: Registry) -> Iterator[list[dict[str, Any]]]:
    """Optional parameters moved off their defaults, one at a time: alternatives of which one is to be tried.

    Each choice of a list stands alone; the values of an open range (a number, a component) stand together.
    """
    for parameter in schema.parameters.values():
        if parameter.required:
            continue
        values = [value for value in values_of(parameter, registry) if value is not None and value != parameter.default]
        choices = values if parameter.shape.kind is None else []
        listed = [value for value in choices if isinstance(value, bool | str)]
        yield from ([{parameter.name: value}] for value in listed)
        if not listed and values:
            yield [{parameter.name: value} for value in values]


def values_of(parameter: Parameter, registry: Registry) -> Iterator[Any]:
    """Small values that the schema of a parameter describes; bounds on several parameters together are not known."""
    yield from _instances(parameter.shape.json_schema(lambda kind: {"enum": plain_names(kind, registry)}))


def plain_names(kind: str, registry: Registry) -> list[str]:
    """The components of a kind that need no parameters."""
    return [c.label for c in registry.components(kind) if c.constructor is not None and not _needs(c)]


def _needs(component: Any) -> bool:
    try:
        return any(parameter.required for parameter in component.schema.parameters.values())
    except PluginError:
        return True


def _instances(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Small values of a JSON Schema, simple ones first."""
    if "anyOf" in schema:
        for option in schema["anyOf"]:
            yield from _instances(option)
    elif "enum" in schema or "const" in schema:
        yield from schema.get("enum", [schema.get("const")])
    elif schema.get("type") == "object":
        needed = {name: list(_instances(schema["properties"][name])) for name in schema.get("required", ())}
        for values in itertools.product(*needed.values()):
            yield dict(zip(needed, values, strict=True))
    else:
        yield from _leaves(schema)


def _leaves(schema: Mapping[str, Any]) -> Iterator[Any]:
    kind = schema.get("type")
    if kind == "boolean":
        yield from (True, False)
    elif kind in ("integer", "number"):
        fitting = [n for n in (_COUNTS if kind == "integer" else _NUMBERS) if _within(n, schema)]
        yield from fitting
        edges = (schema.get("minimum"), schema.get("maximum"))
        yield from (edge for edge in edges if edge is not None and edge not in fitting)
    elif kind == "null":
        yield None


def _within(number: float, schema: Mapping[str, Any]) -> bool:
    closed = schema.get("minimum", number) <= number <= schema.get("maximum", number)
    opened = schema.get("exclusiveMinimum", number - 1) < number < schema.get("exclusiveMaximum", number + 1)
    return bool(closed and opened)
