"""The forms in which a result is printed."""

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.cli.screen import has_color, width

if TYPE_CHECKING:
    from explorer.study.result import Result

SHOWN = 40
"""Rows of a study of many that tables show."""
TABLE = "costs.parquet"
"""The file of a run folder that holds all of them."""


class Format(str, Enum):
    """What `--format` takes."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


def pieces(result: "Result", form: Format, *, breakdown: bool = False, folder: Path | None = None) -> Iterator[str]:
    """The result in one of the forms, in pieces; tables of many rows show the first ones only.

    folder: where all of them were written.
    """
    from explorer.report.csv_text import csv_of_frames, csv_text
    from explorer.report.json_text import json_pieces

    if form is Format.json:
        yield from json_pieces({**result.head, "combinations": result.rows})
    elif form is not Format.csv:
        document = result.excerpt(SHOWN)
        if folder is not None and "excerpt" in document:
            document["excerpt"]["file"] = str(folder / TABLE)
        yield as_text(document, form, breakdown=breakdown)
    elif result.table is not None and result.many:
        yield from csv_of_frames(result.table.frames())
    else:
        yield csv_text(result.to_dict())


def as_text(document: Mapping[str, Any], form: Format, *, breakdown: bool = False) -> str:
    """Tables, notes and cross-checks of a document; `table` is as wide as the terminal."""
    from explorer.report import crosscheck
    from explorer.report.markdown import markdown
    from explorer.report.naming import namer
    from explorer.report.terminal import terminal

    checks = crosscheck.entries(document, namer(document))
    if form is Format.md:
        text = markdown(document, breakdown=breakdown)
        return text + (f"\n{crosscheck.markdown(checks)}" if checks else "")
    shape: dict[str, Any] = {"width": width(), "color": has_color()}
    text = terminal(document, breakdown=breakdown, **shape)
    return text + (f"\n{crosscheck.terminal(checks, **shape)}" if checks else "")
