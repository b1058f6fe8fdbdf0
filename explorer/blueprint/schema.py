"""JSON Schema of blueprints for editors, derived from the fields and from the signatures of what is installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from explorer.blueprint.choices import CORE_COMPONENTS, RECORDS
from explorer.blueprint.fields import BLOCK, FIELDS, MISSING, MODEL, PREFIXES, STACK, Field, at_level
from explorer.blueprint.layers import MOST_LAYERS
from explorer.blueprint.owners import readable
from explorer.blueprint.reading import offers_none
from explorer.blueprint.workload import workload_schema
from explorer.registry.kinds import KINDS
from explorer.registry.parameters import Shape
from explorer.registry.registry import Component, Registry

# `attention.kv_heads: 8`: what a path reaches depends on the component in force, so its value is left open here.
_FIRST = "|".join([*FIELDS, *PREFIXES])
_PATHS: dict[str, Any] = {rf"^({_FIRST})(\.[A-Za-z0-9_-]+)+$": {}}


def json_schema(registry: Registry) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a blueprint file with the components of this registry."""
    kinds = {**{kind: registry.components(kind) for kind in KINDS}, **_core()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "architecture explorer blueprint",
        **_closed({**_header(), **_fields(MODEL), **_stack(), **_stacks(), **_study()}),
        "$defs": {**{kind: _kind(kind, components) for kind, components in kinds.items()}, **_definitions()},
    }


def _core() -> dict[str, tuple[Component, ...]]:
    return {kind: tuple(options.values()) for kind, options in CORE_COMPONENTS.items()}


def _ref(kind: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{kind}"}


def _kind(kind: str, components: Iterable[Component]) -> dict[str, Any]:
    """A component: its name, or a one-key mapping from the name to its parameters; null where there is a `none`."""
    found = tuple(readable(components))
    if kind in RECORDS:
        return {"anyOf": [_parameters(found[0]), {"enum": [None, "none"]}]}
    named = {name: component for component in found for name in _names(component)}
    mapping = {
        "type": "object",
        "properties": {name: _parameters(component) for name, component in named.items()},
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    return {"anyOf": [{"enum": [*named, *([None] if "none" in named else [])]}, mapping]}


def _names(component: Component) -> list[str]:
    qualified = f"{component.package}:{component.name}"
    return [qualified] if component.shared else [component.name, qualified]


def _parameters(component: Component) -> dict[str, Any]:
    # Nothing is required: `attention: {gqa: {softcap: 50}}` is complete with `attention.kv_heads: 8` beside it.
    return {
        "type": ["object", "null"],
        "description": component.doc.split("\n")[0],
        "properties": {p.name: _shape(p.shape) for p in component.schema.parameters.values()},
        "additionalProperties": False,
    }


def _shape(shape: Shape) -> dict[str, Any]:
    """Like the shape's own, and null where that says `none`."""
    schema = shape.json_schema(_ref)
    null = offers_none(shape.leaf) and not shape.nullable
    return {"anyOf": [schema, {"type": "null"}]} if null else schema


def _fields(level: str) -> dict[str, Any]:
    return {field.name: _field(field) for field in at_level(level)}


def _field(field: Field) -> dict[str, Any]:
    schema = _ref("layers") if field.name == "layers" else _shape(field.shape)
    default = {} if field.default is MISSING else {"default": field.default}
    return {**schema, "description": field.doc, **default}


def _stack() -> dict[str, Any]:
    return {**_fields(STACK), **_fields(BLOCK)}


def _stacks() -> dict[str, Any]:
    stack = {"anyOf": [_ref("stack"), {"type": "null"}]}
    return {"encoder": stack, "decoder": stack, "blocks": _ref("blocks")}


def _definitions() -> dict[str, Any]:
    return {
        "block": {**_closed(_fields(BLOCK)), "type": ["object", "null"]},
        "blocks": {"type": ["object", "null"], "additionalProperties": _ref("block")},
        "stack": _closed({**_stack(), "blocks": _ref("blocks")}),
        "item": _layer_item(),
        "layers": _one_or_many(_ref("item"), _COUNT),
        "workload": workload_schema(),
    }


_COUNT = {"type": "integer", "minimum": 1, "maximum": MOST_LAYERS}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    """A mapping of changes."""
    return {"type": "object", "properties": properties, "patternProperties": _PATHS, "additionalProperties": False}


def _one_or_many(item: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*others, item, {"type": "array", "items": item, "minItems": 1}]}


def _layer_item() -> dict[str, Any]:
    pattern = {
        "type": "object",
        "properties": {"pattern": _one_or_many(_ref("item")), "count": _COUNT},
        "required": ["pattern", "count"],
        "additionalProperties": False,
    }
    run = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": _COUNT}
    return {"anyOf": [{"type": "string"}, pattern, run]}


def _header() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {"name": text, "base": text, "requires": {"type": ["array", "null"], "items": {"type": "string"}}}


def _study() -> dict[str, Any]:
    options = {"type": "object", "additionalProperties": {"type": ["object", "null"]}, "minProperties": 1}
    axis = {"anyOf": [{"type": "array", "minItems": 1}, options]}
    return {
        "workloads": _one_or_many(_ref("workload")),
        "explore": {"type": ["object", "null"], "additionalProperties": axis},
        "skip": {"type": ["array", "null"], "items": {"type": "object", "minProperties": 1}},
        "baseline": {"type": ["object", "null"]},
        "match": {"type": "null"},
    }
