"""A result as one JSON document, keys in the order of DESIGN section 8."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from explorer.report.document import Document

INDENT = "  "
WIDEST = 120


def json_text(document: Document) -> str:
    """The document, indented by two blanks; a short list or object that holds no others stands on one line.

    Raises: ValueError where a number is not finite: JSON has no word for it.
    """
    return "".join(json_pieces(document))


def json_pieces(document: Document) -> Iterator[str]:
    """The same text, piece by piece: of many rows, which may be made as they are asked for, one at a time is held."""
    yield from _pieces(document, "\n")
    yield "\n"


def _pieces(value: Any, line: str) -> Iterator[str]:
    """line: the break and the blanks in front of what closes the value."""
    is_object = isinstance(value, Mapping)
    if not is_object and not _is_list(value):
        yield _plain(value)
    elif _flat(value.values() if is_object else value) and len(text := _plain(value)) <= WIDEST:
        yield text
    elif is_object:
        yield from _listed(((f"{_plain(str(key))}: ", inner) for key, inner in value.items()), "{}", line)
    else:
        yield from _listed((("", inner) for inner in value), "[]", line)


def _listed(items: Iterator[tuple[str, Any]], brackets: str, line: str) -> Iterator[str]:
    inside = line + INDENT
    before = brackets[0]
    for key, value in items:
        yield f"{before}{inside}{key}"
        yield from _pieces(value, inside)
        before = ","
    yield f"{line}{brackets[1]}"


def _flat(values: Any) -> bool:
    """Whether none of them holds others; an empty one does not."""
    return not any(value for value in values if isinstance(value, Mapping) or _is_list(value))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
