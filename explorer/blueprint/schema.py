"""JSON Schema of blueprints for editors, derived from the fields and from the signatures of what is installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from explorer.blueprint.choices import CORE_COMPONENTS, RECORDS
from explorer.blueprint.fields import BLOCK, MISSING, MODEL, STACK, Field, at_level
from explorer.blueprint.workload import workload_schema
from explorer.registry.kinds import KINDS
from explorer.registry.registry import Component, Registry

# `attention.kv_heads: 8`: what a path reaches depends on the component in force, so its value is left open here.
_PATHS = {r"^[a-z_]+(\.[A-Za-z_][A-Za-z0-9_-]*)+$": {}}


def json_schema(registry: Registry) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a blueprint file with the components of this registry."""
    kinds = {**{kind: registry.components(kind) for kind in KINDS}, **_core()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "architecture explorer blueprint",
        "type": "object",
        "properties": {**_header(), **_fields(MODEL), **_stack(), **_stacks(), **_study()},
        "patternProperties": _PATHS,
        "additionalProperties": False,
        "$defs": {**{kind: _kind(kind, components) for kind, components in kinds.items()}, **_definitions()},
    }


def _core() -> dict[str, tuple[Component, ...]]:
    return {kind: tuple(options.values()) for kind, options in CORE_COMPONENTS.items()}


def _ref(kind: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{kind}"}


def _kind(kind: str, components: Iterable[Component]) -> dict[str, Any]:
    """A component: its name, or a one-key mapping from the name to its parameters; null where there is a `none`."""
    found = tuple(components)
    if kind in RECORDS:
        return {"anyOf": [_parameters(found[0]), {"enum": [None, "none"]}]}
    names: list[Any] = sorted({name for component in found for name in (component.name, component.label)})
    mappings = [_one_key(component) for component in found if component.schema.parameters]
    return {"anyOf": [{"enum": [*names, *([None] if "none" in names else [])]}, *mappings]}


def _one_key(component: Component) -> dict[str, Any]:
    return {
        "type": "object",
        "description": component.doc.split("\n")[0],
        "properties": {component.label: _parameters(component)},
        "required": [component.label],
        "additionalProperties": False,
    }


def _parameters(component: Component) -> dict[str, Any]:
    parameters = component.schema.parameters.values()
    return {
        "type": ["object", "null"] if not any(p.required for p in parameters) else "object",
        "properties": {p.name: p.shape.json_schema(_ref) for p in parameters},
        "required": [p.name for p in parameters if p.required],
        "additionalProperties": False,
    }


def _fields(level: str) -> dict[str, Any]:
    return {field.name: _field(field) for field in at_level(level)}


def _field(field: Field) -> dict[str, Any]:
    schema = _ref("layers") if field.name == "layers" else field.shape.json_schema(_ref)
    default = {} if field.default is MISSING else {"default": field.default}
    return {**schema, "description": field.doc, **default}


def _stack() -> dict[str, Any]:
    return {**_fields(STACK), **_fields(BLOCK)}


def _stacks() -> dict[str, Any]:
    stack = {"anyOf": [_ref("stack"), {"type": "null"}]}
    return {"encoder": stack, "decoder": stack, "blocks": _ref("blocks")}


def _definitions() -> dict[str, Any]:
    block = {"type": ["object", "null"], "properties": _fields(BLOCK), "patternProperties": _PATHS, "additionalProperties": False}
    blocks = {"type": ["object", "null"], "additionalProperties": _ref("block")}
    stack = {
        "type": "object",
        "properties": {**_stack(), "blocks": _ref("blocks")},
        "patternProperties": _PATHS,
        "additionalProperties": False,
    }
    count = {"type": "integer", "minimum": 1}
    item = {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": {"pattern": _ref("layers"), "count": count},
                "required": ["pattern", "count"],
                "additionalProperties": False,
            },
            {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": count},
        ]
    }
    layers = {"anyOf": [count, {"$ref": "#/$defs/item"}, {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1}]}
    return {"block": block, "blocks": blocks, "stack": stack, "item": item, "layers": layers, "workload": workload_schema()}


def _header() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {"name": text, "base": text, "requires": {"type": "array", "items": {"type": "string"}}}


def _study() -> dict[str, Any]:
    changes = {"type": ["object", "null"]}
    axis = {"anyOf": [{"type": "array", "minItems": 1}, {"type": "object", "additionalProperties": changes, "minProperties": 1}]}
    return {
        "workloads": {"anyOf": [_ref("workload"), {"type": "array", "items": _ref("workload"), "minItems": 1}]},
        "explore": {"type": ["object", "null"], "additionalProperties": axis},
        "skip": {"type": ["array", "null"], "items": {"type": "object", "minProperties": 1}},
        "baseline": {"type": ["object", "null"]},
        "match": {"type": "null"},
    }

