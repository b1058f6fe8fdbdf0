"""A study of many rows as columns: the numbers of a result without a Python object for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.plan import block_label
from explorer.blueprint.varied import Varied
from explorer.cost.sweep.columns import Column, Columns
from explorer.cost.sweep.structure import Structure
from explorer.study.frame import INTENSITY, MEMORY, WORKLOAD, lines_of
from explorer.study.swept import Swept

if TYPE_CHECKING:
    import polars

ROWS_AT_ONCE = 250_000
NUMBERS = (
    "params", "active_params", "shared_params", "matmul_flops", "matmul_flops_exact", "elementwise_ops", "moved_bytes",
    "fused_bytes", INTENSITY, "weight_bytes", "kv_bytes_per_token", "kv_bytes_per_token_full_windows", "kv_cache_bytes",
    "kernels", *(f"memory_{key}" for key in MEMORY),
)  # fmt: skip
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Line:
    """What one line of a row is about: a workload, and the model or a block (stack, name) of so many layers."""

    number: int
    workload: int
    name: str
    block: tuple[str, str] | None = None
    layers: int | None = None

    @property
    def scope(self) -> str:
        return "model" if self.block is None else "block"


@dataclass(eq=False)
class Table:
    """All costs of a study: for each row a line for each workload and scope, one for a row that is skipped.

    The columns are those of `Result.frame` without label, error and latency: choices say as much as a label, and
    nothing was measured.
    """

    swept: Swept

    def counted(self) -> Rows:
        """The indexes of the rows that are not skipped."""
        return np.flatnonzero(~self.swept.dead)

    def reasons(self) -> list[dict[str, Any]]:
        """Why rows are skipped, each reason with how many rows, the most frequent first."""
        texts, codes = self.swept.reason_codes
        found: dict[str, int] = {}
        for text, rows in zip(texts, np.bincount(codes + 1, minlength=len(texts) + 1)[1:].tolist(), strict=True):
            found[text] = found.get(text, 0) + rows  # a rule and a constructor may say the same
        ranked = sorted(found.items(), key=lambda item: -item[1])
        return [{"reason": text, "rows": rows} for text, rows in ranked if rows]

    def frames(self) -> Iterator[polars.DataFrame]:
        """The table in pieces, in the order of the rows."""
        count = len(self.swept.combinations.places)
        for start in range(0, count, ROWS_AT_ONCE):
            yield self._with_heads(self._numbers(np.arange(start, min(start + ROWS_AT_ONCE, count))))

    def _numbers(self, rows: Rows) -> polars.DataFrame:
        """Columns `row` and `line`, and all that is told of a line."""
        import polars

        structures = self.swept.sweep.study().structure
        codes = structures.flat(self.swept.combinations.places[rows])
        counted = ~self.swept.dead[rows] & ~self._alone[rows]
        pieces = [polars.DataFrame({"row": rows[self.swept.dead[rows]], "line": 0}), self._one_by_one(rows)]
        for number, structure in enumerate(structures.values):
            pieces += self._of_structure(structure, rows[counted & (codes == number)])
        return polars.concat([piece for piece in pieces if len(piece)], how="diagonal_relaxed").sort("row", "line")

    def _of_structure(self, structure: Structure, rows: Rows) -> Iterator[polars.DataFrame]:
        """One frame for each line of rows of one structure."""
        if not len(rows):
            return
        columns = Columns(self.swept.results, structure, self.swept.combinations.places[rows])
        lines = self._lines(structure)
        blocks = dict.fromkeys(line.block for line in lines)
        params = {block: columns.params(block) for block in blocks}
        for line in lines:
            numbers = {"params": params[line.block], **columns.costs(line.workload, line.block)}
            if line.block is None or (not structure.whole and len(blocks) == 1):
                shared = columns.shared() if structure.whole else Column(np.zeros(len(rows), np.int64))
                numbers |= {"active_params": columns.active(), "shared_params": shared}
            yield self._line(line, rows, numbers, columns.incomplete(line.workload, line.block))

    def _lines(self, structure: Structure) -> list[Line]:
        blocks = [(block_label(*at), at, times) for at, times in structure.counted()]
        whole: list[Any] = [("model", None, None)] if structure.whole else []
        workloads = range(len(self.swept.sweep.workloads))
        about = [(workload, *scope) for workload in workloads for scope in (*blocks, *whole)]
        return [Line(number, *one) for number, one in enumerate(about)]

    def _line(self, line: Line, rows: Rows, numbers: dict[str, Column], incomplete: Varied[str]) -> polars.DataFrame:
        import polars

        places = self.swept.combinations.places[rows]
        settled = self.swept.sweep.settled[line.workload]
        words = {key: _told(Varied.map(lambda w, key=key: getattr(w, key, None), settled), places) for key in WORKLOAD}
        about = {"scope": line.scope, "name": line.name, "layers": line.layers}
        fixed = [polars.lit(value, _dtype(value)).alias(key) for key, value in about.items()]
        data = {"row": rows, "line": np.full(len(rows), line.number, np.int32), **words}
        known = {name: _series(numbers[name]) for name in NUMBERS if name in numbers}
        return polars.DataFrame({**data, **known, "incomplete": _told(incomplete, places)}).with_columns(fixed)

    def _one_by_one(self, rows: Rows) -> polars.DataFrame:
        """Rows that were counted alone, from their documents."""
        import polars

        lines = [
            {"row": int(row), "line": number, **line}
            for row in rows[self._alone[rows]]
            for number, line in enumerate(lines_of(self.swept.row(int(row))))
        ]
        return polars.DataFrame(lines, infer_schema_length=None)

    @cached_property
    def _alone(self) -> NDArray[np.bool_]:
        apart = np.fromiter(self.swept.apart, np.intp, len(self.swept.apart))
        return np.isin(self.swept.combinations.places, apart)

    def _with_heads(self, frame: polars.DataFrame) -> polars.DataFrame:
        """The frame with what is told of rows: id, choices, baseline, reason."""
        import polars

        rows = frame["row"].to_numpy()
        heads = {name: series.gather(rows) for name, series in self._heads.items()}
        columns = ("scope", "name", "layers", *WORKLOAD, *NUMBERS, "incomplete")
        # Where all rows of a piece are skipped it has none of them.
        absent = {name: polars.lit(None, polars.Int64) for name in columns if name not in frame}
        return frame.with_columns(**heads, **absent).with_columns(_intensity()).select(*heads, *columns)

    @cached_property
    def _heads(self) -> dict[str, polars.Series]:
        import polars

        rows = self.swept.combinations
        ids = polars.Series(rows.ids())
        partners = rows.partners(self.swept.dead)
        texts, reasons = self.swept.reason_codes
        choices = {
            f"choices.{axis.name}": _enum(rows.options(axis), [option.text for option in axis.options])
            for axis in rows.axes
        }
        return {
            "id": ids,
            **choices,
            "baseline": polars.Series(partners == np.arange(len(partners))),
            "baseline_id": polars.concat([polars.Series([None], dtype=polars.String), ids]).gather(partners + 1),
            "skipped": _enum(reasons, texts),
        }


def _intensity() -> polars.Expr:
    """FLOPs of matrix products for each byte moved; null where nothing moves."""
    import polars

    flops, moved = (polars.col(name).cast(polars.Float64) for name in ("matmul_flops", "moved_bytes"))
    return polars.when(moved > 0).then(flops / moved).alias(INTENSITY)


def _told(varied: Varied[Any], places: NDArray[np.intp]) -> polars.Series:
    """Words or numbers that vary along few axes."""
    import polars

    known = next((value for value in varied.values if value is not None), None)
    values = polars.Series(list(varied.values), dtype=_dtype(known), strict=False)
    return values.gather(varied.flat(places))


def _dtype(value: Any) -> Any:
    import polars

    return polars.String if isinstance(value, str) else polars.Int64


def _enum(codes: NDArray[np.int32], texts: list[str]) -> polars.Series:
    """Texts by their index, null for -1."""
    import polars

    distinct = list(dict.fromkeys(texts))
    values = polars.Series([None, *texts], dtype=polars.Enum(distinct))
    return values.gather(codes + 1)


def _series(column: Column) -> polars.Series:
    """Numbers with null where they are not known; integers beyond 64 bits as decimals."""
    import polars

    values = column.numbers
    wide = polars.Decimal(38, 0) if values.dtype == object else None
    series = polars.Series(values.tolist(), dtype=wide) if wide else polars.Series(values)
    return series if column.unknown is None else series.set(polars.Series(column.unknown), None)
