"""From a result document to comparison tables, one per workload: what terminal and Markdown print."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from explorer.report.column import Column
from explorer.report.columns import measures
from explorer.report.document import Document, Workload, workload_text, workloads
from explorer.report.naming import Namer, namer
from explorer.report.rows import Row, are_compared, parts, rows_of, timed_rows
from explorer.report.timing import stand_apart, timing_columns
from explorer.report.units import NOTHING, printable


@dataclass(frozen=True)
class Comparison:
    """One table. ``choices`` (a column per axis) and ``label`` (all in one) name the rows: show one of the two."""

    title: str
    label: Column
    choices: tuple[Column, ...]
    measures: tuple[Column, ...]
    baselines: tuple[bool, ...]


def comparisons(document: Document) -> list[Comparison]:
    """The tables of a result, in the order of its workloads.

    Where layers are not all alike, the latencies of blocks have a table of their own.
    """
    name = namer(document)
    return [table for workload in workloads(document) for table in _of_workload(document, workload, name)]


def _of_workload(document: Document, workload: Workload, name: Namer) -> Iterator[Comparison]:
    rows = rows_of(document, workload)
    yield _comparison(document, workload, name, rows, measures(rows, workload))
    if stand_apart(rows):
        timed = timed_rows(rows)
        yield _comparison(document, workload, name, timed, timing_columns(timed, compared=are_compared(timed)))


def _comparison(
    document: Document, workload: Workload, name: Namer, rows: Sequence[Row], columns: Sequence[Column]
) -> Comparison:
    found = parts(rows)
    names = [name(row.combination) for row in rows]
    if len(found) > 1:
        names = [f"{text}, {printable(row.part)}" for text, row in zip(names, rows, strict=True)]
    label = Column(", ".join(map(printable, document["axes"])) or "blueprint", tuple(names), numeric=False)
    return Comparison(
        title=f"{printable(document['blueprint']['name'])} · {_scope(found)} · {workload_text(workload)}",
        label=label,
        choices=tuple(_choices(document, rows, found)) or (label,),
        measures=tuple(columns),
        baselines=tuple(row.is_baseline for row in rows),
    )


def _scope(found: Sequence[str]) -> str:
    if found == ["model"]:
        return "whole model"
    return "model and blocks" if "model" in found else "one block" if len(found) == 1 else "blocks"


def _choices(document: Document, rows: Sequence[Row], found: Sequence[str]) -> Iterator[Column]:
    """A column per axis, an axis that rests in a row leaving a dash, and one for the parts where there are several."""
    for axis in document["axes"]:
        yield Column(printable(axis), tuple(_choice(row, axis) for row in rows), numeric=False)
    if len(found) > 1:
        yield Column("part", tuple(printable(row.part) for row in rows), numeric=False)


def _choice(row: Row, axis: str) -> str:
    choice = row.combination["choices"].get(axis)
    return NOTHING if choice is None else printable(choice)
