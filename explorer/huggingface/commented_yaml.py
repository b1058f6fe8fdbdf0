"""An imported blueprint as YAML for people: short, one line a field, with comments."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from explorer.huggingface.import_config import Import

WIDTH = 120
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def commented_yaml(imported: Import, source: str) -> str:
    """The text of the blueprint; `source`: where the config was read."""
    name = imported.name if re.fullmatch(r"[\w.-]+/[\w.-]+", imported.name) else " ".join(source.split())
    title = f"{name} config.json" if name == imported.name else name
    lines = [f"# {title}, model_type {imported.model_type}", *(f"# {remark}" for remark in imported.remarks)]
    for key, value in imported.fields.items():
        lines += _commented(list(_field(key, value, "")), imported.comments.get(key))
    return "\n".join(lines) + "\n"


def _commented(lines: list[str], comment: str | None) -> list[str]:
    if comment is None:
        return lines
    if len(lines) == 1 and len(lines[0]) + len(comment) + 4 <= WIDTH:
        return [f"{lines[0]}  # {comment}"]
    return [f"# {comment}", *lines]


def _field(key: str, value: Any, indent: str) -> Iterator[str]:
    """On one line if it fits. `blocks` a line each, and so the keys of a mapping that is too long and holds others."""
    line = f"{indent}{key}: {_flow(value)}"
    if isinstance(value, Mapping) and value and (key == "blocks" or (len(line) > WIDTH and _holds_mappings(value))):
        yield f"{indent}{key}:"
        for inner, inner_value in value.items():
            yield from _field(inner, inner_value, f"{indent}  ")
    else:
        yield from _wrapped(line, f"{indent}    ")


def _holds_mappings(value: Mapping[str, Any]) -> bool:
    return any(isinstance(inner, Mapping) for inner in value.values())


def _wrapped(line: str, indent: str) -> list[str]:
    """The line, continued below where it is too long; a key stays with its value."""
    kept = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\0", " ") for part in kept.wrap(line.replace(": ", ":\0"))]


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float):
        return re.sub(r"e([-+])0*", r"e\1", repr(value)).replace("e+", "e")
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in _NO_WORDS:
        return value
    return json.dumps(value)
