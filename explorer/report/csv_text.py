"""A result as CSV: exact numbers, empty where a number is not known."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from explorer.report.document import Document
from explorer.study.frame import columns, rows

if TYPE_CHECKING:
    import polars

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_text(document: Document) -> str:
    """The rows of ``frame`` below a line of column names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns(document))
    writer.writerows(map(_cell, row) for row in rows(document))
    return text.getvalue()


def csv_of_frames(frames: Iterable[polars.DataFrame]) -> Iterator[str]:
    """The same for many rows, which come as tables of equal columns."""
    import polars

    for index, frame in enumerate(frames):
        texts = [name for name, kind in frame.schema.items() if kind in (polars.String, polars.Enum)]
        safe = frame.with_columns(_guarded(name) for name in texts)
        yield safe.write_csv(include_header=index == 0)


def _guarded(name: str) -> polars.Expr:
    import polars

    text = polars.col(name).cast(polars.String)
    starts = polars.any_horizontal(text.str.starts_with(sign) for sign in _FORMULA_STARTS)
    return polars.when(starts).then(polars.lit("'") + text).otherwise(text).alias(name)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    # A spreadsheet runs text that starts like a formula; an apostrophe keeps it text. Numbers stay numbers.
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
