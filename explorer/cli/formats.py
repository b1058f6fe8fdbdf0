"""The forms in which a result is printed."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from explorer.cli.screen import has_color, width


class Format(str, Enum):
    """What `--format` takes."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


def as_text(document: Mapping[str, Any], form: Format) -> str:
    """The document in one of the forms; `table` is as wide as the terminal."""
    from explorer.report.csv_text import csv_text
    from explorer.report.json_text import json_text
    from explorer.report.markdown import markdown
    from explorer.report.terminal import terminal

    if form is Format.table:
        return terminal(document, width=width(), color=has_color())
    return {Format.json: json_text, Format.csv: csv_text, Format.md: markdown}[form](document)
