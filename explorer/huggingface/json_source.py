"""A config.json: its text as a mapping, with the place of every key."""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explorer.errors import NOWHERE, BlueprintError, Problem, Where, hints
from explorer.huggingface.reader import shown

MAX_BYTES = 1 << 22
NAME = "config.json"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


@dataclass(frozen=True)
class ConfigSource:
    """A config as written. places: of each key, by its path (`rope_scaling.factor`). home: of the whole."""

    values: Mapping[str, Any]
    home: Where = NOWHERE
    places: Mapping[str, Where] = field(default_factory=dict)


def read_config(source: str) -> ConfigSource:
    """The config in a file, in the `config.json` of a folder, or on standard input ("-").

    Raises: BlueprintError for a file that is missing, unreadable, larger than 4 MiB or no JSON mapping.
    """
    if source == "-":
        return parsed(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    path = Path(source)
    try:
        path = path / NAME if path.is_dir() else path
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        beside = path.parent if path.name == NAME else None
        inside = f"the folder {str(beside)!r} has none" if beside and beside.is_dir() else None
        raise BlueprintError(Problem(Where(str(path)), "", "no such file", hints(inside))) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BlueprintError(Problem(Where(str(path)), "", f"the file cannot be read: {reason}")) from None
    return parsed(data, str(path))


def parsed(data: bytes, file: str) -> ConfigSource:
    """The config in the bytes of a file.

    Raises: BlueprintError.
    """
    home = Where(file)
    if len(data) > MAX_BYTES:
        raise BlueprintError(Problem(home, "", "the file is larger than 4 MiB: this is no config.json"))
    try:
        text = data.decode("utf-8-sig")
        values = json.loads(text)
    except UnicodeDecodeError as error:
        raise BlueprintError(Problem(home, "", f"this is no UTF-8 text: byte {error.start} cannot be read")) from None
    except json.JSONDecodeError as error:
        where = Where(file, error.lineno, error.colno)
        raise BlueprintError(Problem(where, "", f"this is no JSON: {error.msg}")) from None
    except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits
        raise BlueprintError(Problem(home, "", f"this is no config.json: {error}")) from None
    if not isinstance(values, dict):
        raise BlueprintError(Problem(home, "", f"a config is a mapping of fields, not {_kind(values)}"))
    places, twice = _places(text, file)
    if twice:
        raise BlueprintError(twice)
    return ConfigSource(values, home, places)


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else shown(value)


def _places(text: str, file: str) -> tuple[dict[str, Where], list[Problem]]:
    """Where each key of valid JSON stands, and the keys that are written twice. Paths pass lists without a number."""
    places: dict[str, Where] = {}
    twice: list[Problem] = []
    path: list[str] = []  # the last key of each mapping that is open, "" for each list
    lines = [0, *(end.end() for end in re.finditer("\n", text))]
    tokens = list(_TOKEN.finditer(text))
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        sign = token.group()
        if sign in ("{", "["):
            path.append("")
        elif sign in ("}", "]"):
            path.pop()
        elif sign[0] == '"' and after is not None and after.group() == ":":
            path[-1] = json.loads(sign)
            line = bisect_right(lines, token.start())
            full, where = ".".join(path), Where(file, line, token.start() - lines[line - 1] + 1)
            if full in places and "" not in path:
                twice.append(Problem(where, full, f"is written twice, first in line {places[full].line}"))
            places[full] = where
    return places, twice
