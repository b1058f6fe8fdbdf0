"""A result as CSV: exact numbers, empty where a number is not known."""

import csv
import io
from typing import Any

from explorer.report.document import Document
from explorer.study.frame import columns, rows

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_text(document: Document) -> str:
    """The rows of ``frame`` below a line of column names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns(document))
    writer.writerows(map(_cell, row) for row in rows(document))
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    # A spreadsheet runs text that starts like a formula; an apostrophe keeps it text. Numbers stay numbers.
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
