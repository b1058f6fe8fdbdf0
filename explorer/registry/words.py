"""Values and types in words: as a blueprint writes them on one line, and as messages and documentation say them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z_][\w.:/-]*|\d+/\d+", re.ASCII)
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off"})  # words that YAML 1.1 or 1.2 reads otherwise
_TYPES = {"integer": "int", "number": "float", "boolean": "true or false", "string": "str", "null": "null"}
_BOUNDS = {
    "exclusiveMinimum": "> {}",
    "minimum": ">= {}",
    "exclusiveMaximum": "< {}",
    "maximum": "<= {}",
    "multipleOf": "a multiple of {}",
    "minLength": "of at least {} characters",
    "maxLength": "of at most {} characters",
    "pattern": "matching {}",
}


def written_text(value: Any) -> str:
    """A plain value as a blueprint writes it on one line; text is quoted where it would be read as something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {written_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(written_text(item) for item in value) + "]"
    return _quoted(value) if isinstance(value, str) else str(value)


def inner_text(value: Any) -> str:
    """The same after ``name:key=``, where a bare colon would end the value: ``"package:name"``."""
    text = written_text(value)
    return json.dumps(text) if isinstance(value, str) and ":" in text and not text.startswith('"') else text


def reads_as_text(word: str) -> bool:
    """Whether YAML reads the bare word as text, whatever its version."""
    return word.lower() not in _NOT_TEXT


def _quoted(text: str) -> str:
    bare = _BARE.fullmatch(text) and not text.endswith(":") and reads_as_text(text)
    return text if bare else json.dumps(text, ensure_ascii=False)


def type_text(schema: Mapping[str, Any]) -> str:
    """The type that a JSON Schema allows: ``int >= 1``, ``float > 0 or sqrt_dim``, ``list of int``."""
    if "anyOf" in schema:
        return " or ".join(type_text(option) for option in schema["anyOf"])
    options = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if options:
        return " or ".join(written_text(option) for option in options)
    if schema["type"] == "array":
        return _list_text(schema)
    bounds = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    return " ".join([_TYPES[schema["type"]], " and ".join(bounds)]).strip()


def _list_text(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        return "[" + ", ".join(type_text(item) for item in schema["prefixItems"]) + "]"
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    count = f"{least} to {most} " if most is not None else f"at least {least} " if least else ""
    item = type_text(schema["items"])
    return f"list of {str(least) + ' ' if least == most else count}{f'({item})' if ' ' in item else item}"
