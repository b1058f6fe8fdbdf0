"""The result of a study: one document, the JSON of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from explorer.study.frame import columns, rows

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Result:
    """What ``run`` returns. ``to_dict`` is the document that ``explorer run --format json`` prints."""

    document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.document

    @property
    def failed(self) -> bool:
        """Whether a measurement failed."""
        return any(row["error"] for row in self.document["combinations"])

    def frame(self) -> polars.DataFrame:
        """One row per combination, workload, scope and block name, as in the CSV; a skipped combination is one row."""
        import polars

        names, data = columns(self.document), list(rows(self.document))
        return polars.DataFrame(data, schema=names, orient="row", infer_schema_length=None)
