"""The tree of a model's modules as text, with what each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from explorer.cost.tree import Node
from explorer.report.document import Workload, workload_text
from explorer.report.grid import GAP, HANG, GridColumn, grid, longest_word, widest, wrap
from explorer.report.units import BYTES, NOTHING, OPERATIONS, PARAMS, exact, printable, short

NARROWEST_NAME, WIDEST_NAME = 16, 44


@dataclass(frozen=True)
class Line:
    """A module and where it stands."""

    text: str
    node: Node


Figure = Callable[[Node], str]


def tree_text(name: str, root: Node, workload: Workload, *, width: int, depth: int | None = None) -> str:
    """The tree down to a depth, 0 for the model alone; no line is longer than ``width`` from about 60 cells on.

    The columns that a narrow screen has no room for are named below.
    """
    lines = list(_lines(root, depth))
    columns = [_column(head, [figure(line.node) for line in lines]) for head, figure in FIGURES]
    names = [line.text for line in lines]
    while len(columns) > 1 and _room(columns, width) < min(widest(names), WIDEST_NAME):
        columns.pop()
    modules = GridColumn("module", names, min(widest(names), max(_room(columns, width), NARROWEST_NAME)))
    title = wrap(f"{printable(name)} · {workload_text(workload)}", width)
    left_out = [head for head, _ in FIGURES[len(columns) :]]
    notes = [line for note in _notes(lines, left_out) for line in wrap(note, width, HANG)]
    return "\n".join([*title, *(line.text for line in grid([modules, *columns])), "", *notes]) + "\n"


def _lines(node: Node, depth: int | None, branch: str = "", below: str = "") -> Iterator[Line]:
    """branch: what stands before its name. below: what its modules have in front of their branches."""
    yield Line(branch + _name(node), node)
    if depth == 0:
        return
    inner = None if depth is None else depth - 1
    for index, child in enumerate(node.children):
        last = index == len(node.children) - 1
        yield from _lines(child, inner, below + ("└─" if last else "├─"), below + ("  " if last else "│ "))


def _name(node: Node) -> str:
    """ "0-31: Block × 32"; of the whole only its class."""
    times = f" × {len(node.names)}" if len(node.names) > 1 else ""
    names = numbers(node.names)
    return printable(f"{names}: {node.kind}{times}" if names else node.kind)


def numbers(names: Sequence[str]) -> str:
    """ "0-31"; "0, 2 ... 40" where they do not follow one another."""
    if len(names) == 1:
        return names[0]
    found = [int(name) for name in names]
    if found == list(range(found[0], found[-1] + 1)):
        return f"{found[0]}-{found[-1]}"
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} ... {names[-1]}"


def _count(key: str, form: Callable[[int | None], str]) -> Figure:
    def figure(node: Node) -> str:
        return NOTHING if node.counts is None else form(getattr(node.counts, key))

    return figure


FIGURES: tuple[tuple[str, Figure], ...] = (
    ("params", lambda node: short(node.params, PARAMS)),
    ("matmul FLOPs", _count("matmul_flops", lambda value: short(value, OPERATIONS))),
    ("elementwise ops", _count("elementwise_ops", lambda value: short(value, OPERATIONS))),
    ("moved bytes", _count("moved_bytes", lambda value: short(value, BYTES))),
    ("kernels", _count("kernels", exact)),
)
"""In order of importance."""


def _column(head: str, cells: Sequence[str]) -> GridColumn:
    return GridColumn(head, cells, max(widest(cells), longest_word(head)), right=True)


def _room(columns: Sequence[GridColumn], width: int) -> int:
    """Cells that are left for the names of modules."""
    return width - sum(column.width + GAP for column in columns)


def _is_read_from_outside(node: Node) -> bool:
    """Whether it has weights of its own and is not called itself, as the table of a head."""
    return node.params > 0 and not node.children and node.counts is not None and not node.counts.kernels


def _notes(lines: Sequence[Line], left_out: Sequence[str]) -> Iterator[str]:
    yield (
        "tree: torchinfo; figures: explorer, of a module with all that it holds; what it calls elsewhere in the tree "
        "(positions) is counted there; 1 multiply-add = 2 FLOPs, dense"
    )
    if any(len(line.node.names) > 1 for line in lines):
        yield "× N: so many that are alike in every figure, which is of one of them"
    if any(line.node.counts is None for line in lines):
        yield f"{NOTHING}: stands in the tree before, and is counted there"
    if any(_is_read_from_outside(line.node) for line in lines):
        yield "0 beside parameters: a module that is not called; what holds it reads the weight, and is counted with it"
    if left_out:
        yield f"left out: {'; '.join(left_out)} (a wider terminal shows all)"
