"""What each kind of part takes: two tables for each cost, of operations and of bytes, with shares of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from explorer.report.column import Column
from explorer.report.comparison import Comparison
from explorer.report.document import Combination, Cost, Document, survivors, workload_text
from explorer.report.naming import namer
from explorer.report.units import BYTES, OPERATIONS, UNKNOWN, Steps, exact, printable, share, short

WHOLE = "whole"
SHARE = "%"
PARTS = (
    "attention (cross-attention too) and feedforward with their dropout; residual: entering, reading, writing and "
    "leaving the stream, and additions of gradients"
)
OPERATIONS_ARE = (
    "one for each element of a result; cheap: additions, products, comparisons; exp, tanh ...: transcendental "
    "functions, still one each; sums: reductions, one for each element of what is reduced"
)
BYTES_ARE = (
    "read and written in eager mode, every kernel by itself; fused: each chain of element-wise operators moves its "
    "ends only, as a compiler makes it"
)

Figures = Mapping[str, int | None]


def breakdowns(document: Document) -> Iterator[Comparison]:
    """The tables of all rows and workloads, blocks before their model."""
    name = namer(document)
    for combination in survivors(document):
        for cost in combination["costs"]:
            if cost.get("breakdown"):
                yield from _tables(name(combination), combination, cost)


def _tables(name: str, combination: Combination, cost: Cost) -> Iterator[Comparison]:
    kinds: dict[str, Figures] = cost["breakdown"]
    what = "model" if cost["scope"] == "model" else f"one layer, {printable(cost['name'])}"
    label = Column("part", (*kinds, WHOLE), numeric=False)
    bold = (*(False for _ in kinds), True)
    figures = [*kinds.values(), _whole(list(kinds.values()))]
    for of, columns in (("operations", _operations(figures)), ("bytes and kernels", _traffic(figures))):
        title = f"{of} by part · {name} · {what} · {workload_text(cost['workload'])}"
        yield Comparison(title, label, (label,), tuple(columns), bold)


def _operations(figures: Sequence[Figures]) -> list[Column]:
    return [
        *_with_share("matmul FLOPs, dense", "matmul_flops", figures, OPERATIONS, 0),
        *_with_share("matmul FLOPs, exact", "matmul_flops_exact", figures, OPERATIONS, 2),
        *_with_share("elementwise ops", "elementwise_ops", figures, OPERATIONS, 1),
        _column("cheap", "cheap_ops", figures, OPERATIONS, 6),
        _column("exp, tanh ...", "transcendental_ops", figures, OPERATIONS, 4),
        _column("sums", "reduction_ops", figures, OPERATIONS, 5),
    ]


def _traffic(figures: Sequence[Figures]) -> list[Column]:
    return [
        *_with_share("moved bytes", "moved_bytes", figures, BYTES, 0),
        _column("of weights", "moved_weights", figures, BYTES, 3),
        _column("activations", "moved_activations", figures, BYTES, 4),
        _column("cache", "moved_cache", figures, BYTES, 4),
        *_with_share("fused bytes", "fused_bytes", figures, BYTES, 1),
        *_with_share("kernels", "kernels", figures, None, 2),
    ]


def _with_share(header: str, key: str, figures: Sequence[Figures], steps: Steps | None, rank: int) -> list[Column]:
    whole = figures[-1][key]
    shares = tuple(share(one[key], whole) for one in figures)
    return [_column(header, key, figures, steps, rank), Column(SHARE, shares, rank)]


def _column(header: str, key: str, figures: Sequence[Figures], steps: Steps | None, rank: int) -> Column:
    return Column(header, tuple(_cell(one[key], steps) for one in figures), rank)


def _cell(value: int | None, steps: Steps | None) -> str:
    if value is None:
        return UNKNOWN
    return exact(value) if steps is None else short(value, steps)


def _whole(figures: Sequence[Figures]) -> Figures:
    """The sum over parts, which is what the cost says; unknown where one part is."""
    whole: dict[str, int | None] = {}
    for key in figures[0]:
        known = [value for one in figures if (value := one[key]) is not None]
        whole[key] = sum(known) if len(known) == len(figures) else None
    return whole
