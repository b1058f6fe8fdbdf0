"""The rows of a comparison table: one per combination (per block, where there is no whole model), with its baseline."""

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.report.document import (
    Combination,
    Cost,
    Document,
    Workload,
    block_costs,
    cost_params,
    main_costs,
    survivors,
)


@dataclass(frozen=True)
class Row:
    """One combination under one workload; ``base`` is the row it is compared with, itself for a baseline."""

    combination: Combination
    cost: Cost
    base: "Row | None" = None

    @property
    def is_baseline(self) -> bool:
        return bool(self.combination["baseline"])

    @property
    def part(self) -> str:
        """What the row is about: "model", or the name of the block."""
        return "model" if self.cost["scope"] == "model" else str(self.cost["name"])

    @property
    def params(self) -> int | None:
        return cost_params(self.combination, self.cost)

    @property
    def block_params(self) -> int | None:
        """Parameters of a layer; None where the layers are not all alike."""
        found: int | None = self.combination["params"]["block"]
        return found

    @property
    def active(self) -> int | None:
        """Active parameters of the whole: the model's, or the block's where there is no model."""
        found: int | None = self.combination["params"]["active"]
        return found

    @property
    def block_costs(self) -> list[Cost]:
        """The costs of the blocks under the same workload, one where all layers are alike."""
        return block_costs(self.combination, self.cost["workload"])

    def count(self, key: str) -> int | None:
        """A figure of the cost entry; None where it is not known."""
        found: int | None = self.cost.get(key)
        return found

    def of_kind(self, kind: str, key: str) -> int | None:
        """What a kind of part takes of a figure, 0 without such a part; None where that is not known."""
        kinds = self.cost.get("breakdown")
        found: int | None = (kinds[kind][key] if kind in kinds else 0) if kinds else None
        return found

    def memory(self, key: str) -> int | None:
        """Bytes of the cost entry's memory; None where that is not known."""
        found: int | None = (self.cost.get("memory") or {}).get(key)
        return found


def rows_of(document: Document, workload: Workload) -> list[Row]:
    """All rows under one workload, in the order of the study."""
    found = [
        Row(combination, cost) for combination in survivors(document) for cost in main_costs(combination, workload)
    ]
    index = {(row.combination["id"], row.part): row for row in found}
    return [Row(row.combination, row.cost, index.get((_base_id(row.combination), row.part))) for row in found]


def are_compared(rows: Sequence[Row]) -> bool:
    """Whether some row has a baseline beside itself."""
    return any(row.base is not None and not row.is_baseline for row in rows)


def timed_rows(rows: Sequence[Row]) -> list[Row]:
    """What has latencies: of rows about whole models their blocks, each against the block of that name in its baseline.

    A model whose layers are all alike is one row, against the one block of its baseline.
    """
    return [timed for row in rows for timed in (_blocks(row) if row.part == "model" else ()) or (row,)]


def are_uneven(rows: Sequence[Row]) -> bool:
    """Whether some row about a whole model has several blocks: no one latency is that of its layer."""
    return any(row.part == "model" and len(row.block_costs) > 1 for row in rows)


def _blocks(row: Row) -> list[Row]:
    of_base = row.base.block_costs if row.base else []
    alike = len(row.block_costs) == len(of_base) == 1
    base = {cost["name"]: cost for cost in of_base}
    found = []
    for cost in row.block_costs:
        beside = of_base[0] if alike else base.get(cost["name"])
        partner = Row(row.base.combination, beside) if row.base and beside else None
        found.append(Row(row.combination, cost, partner))
    return found


def _base_id(combination: Combination) -> str | None:
    base: str | None = combination["id"] if combination["baseline"] else combination["baseline_id"]
    return base


def parts(rows: Sequence[Row]) -> list[str]:
    """The distinct parts that the rows are about."""
    return list(dict.fromkeys(row.part for row in rows))
