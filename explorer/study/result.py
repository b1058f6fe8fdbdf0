"""The result of a study: the JSON of the command line, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.study.frame import columns, rows

if TYPE_CHECKING:
    import polars

    from explorer.study.large import Table

MANY = 1_000
"""Rows above which a result is written as a table, and shown in part."""


class Result:
    """What ``run`` returns.

    head: the document without its rows. rows: those, which may be made as they are asked for. table: of all rows,
    where there are too many for objects.
    """

    def __init__(
        self, document: dict[str, Any], rows: Sequence[dict[str, Any]] | None = None, table: Table | None = None
    ):
        self.head = {key: value for key, value in document.items() if key != "combinations"}
        self.rows: Sequence[dict[str, Any]] = document["combinations"] if rows is None else rows
        self.table = table

    @property
    def many(self) -> bool:
        """Whether there are more rows than are worth an object each."""
        return self.table is not None and len(self.rows) > MANY

    def to_dict(self) -> dict[str, Any]:
        """The document that ``explorer run --format json`` prints, with every row."""
        return {**self.head, "combinations": self.rows[:]}

    def excerpt(self, count: int) -> dict[str, Any]:
        """The document; of many rows the first that are counted only, and `excerpt` says how many of how many.

        Skipped rows are not among them: `skipped_reasons` tells of all.
        """
        if not self.many:
            return self.to_dict()
        assert self.table is not None, "many rows have a table"
        alive = self.table.counted()
        shown = [self.rows[int(index)] for index in alive[:count]]
        part = {"excerpt": {"rows": len(shown), "of": len(alive)}} if len(shown) < len(alive) else {}
        return {**self.head, **part, "combinations": shown}

    @property
    def failed(self) -> bool:
        """Whether a measurement failed, an audit found a number that is no sum of parts, or nobody can say why another
        counter prints what it prints.
        """
        if self.head.get("audit", {}).get("mismatches"):
            return True
        return not self.many and any(row["error"] or _unexplained(row) for row in self.rows)

    def frame(self) -> polars.DataFrame:
        """One row per combination, workload, scope and block name, as in the CSV; a skipped combination is one row.

        Of many combinations the columns `label`, `error` and those of latency are left out.
        """
        import polars

        if self.many:
            assert self.table is not None, "many rows have a table"
            return polars.concat(list(self.table.frames()), how="vertical_relaxed")
        document = self.to_dict()
        names, data = columns(document), list(rows(document))
        return polars.DataFrame(data, schema=names, orient="row", infer_schema_length=None)

    def write_parquet(self, path: Path) -> None:
        """Write ``frame`` to a Parquet file."""
        self.frame().write_parquet(path)


def _unexplained(row: Mapping[str, Any]) -> bool:
    """Whether a cross-check of a row shows a difference without a known reason."""
    return any(tool["explained"] is False for entry in row.get("crosscheck", ()) for tool in entry["tools"])
