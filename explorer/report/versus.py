"""One block against another on a terminal: the times of both, and the verdict in a sentence."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from explorer.report.document import Document, workload_text
from explorer.report.grid import HANG, GridColumn, grid, widest, wrap
from explorer.report.latency_notes import cautions, compilation
from explorer.report.timing import clean_rounds, interval, milliseconds
from explorer.report.units import NOTHING, plural, printable

Entry = Mapping[str, Any]

LETTERS = "AB"


def versus_text(document: Document, width: int) -> str:
    """Each workload with its times and verdicts; no line is longer than ``width`` cells."""
    sections = ["\n".join(_section(document, measured, width)) for measured in document["measurements"]]
    ends = [*_failures(document, width), *_surroundings(document, width)]
    return "\n\n".join([*sections, "\n".join(ends)]) + "\n"


def _failures(document: Document, width: int) -> Iterator[str]:
    """What failed, in one process or in all: the reason of exit 1."""
    for letter, row in zip(LETTERS, document["combinations"], strict=True):
        if row["error"]:
            yield from wrap(printable(f"failed: {letter}: {row['error']}"), width, HANG)


def _section(document: Document, measured: Mapping[str, Any], width: int) -> Iterator[str]:
    title = f"{measured['block']} · {workload_text(measured['workload'])}"
    yield from wrap(printable(title), width)
    pairs = [_entries(row, measured) for row in document["combinations"]]
    labels = [printable(row["label"]) for row in document["combinations"]]
    lines = [
        (letter, label, entry) for letter, label, found in zip(LETTERS, labels, pairs, strict=True) for entry in found
    ]
    yield from _table(lines, width)
    for entry in pairs[1]:
        yield from wrap(f"B / A{_lane(entry, pairs[1])}: {_ratio(entry['ratio'])}", width, HANG)
        yield from wrap(
            f"{str(entry['verdict'] or 'no verdict').upper()}: {entry['reason'] or 'nothing to compare'}", width, HANG
        )
    for control in measured["control_ratios"]:
        yield from wrap(f"A / A{_lane(control, measured['control_ratios'])}: {_ratio(control)}", width, HANG)
    for line in dict.fromkeys(_notes(document["combinations"], pairs)):
        yield from wrap(f"note: {printable(line)}", width, HANG)


def _entries(row: Mapping[str, Any], measured: Mapping[str, Any]) -> Sequence[Entry]:
    return [
        entry
        for cost in row["costs"]
        if cost["scope"] == "block" and cost["workload"] == measured["workload"]
        for entry in cost["latencies"]
        if entry["source"] == "measured"
    ]


def _table(lines: Sequence[tuple[str, str, Entry]], width: int) -> list[str]:
    entries = [entry for _, _, entry in lines]
    names = [f"{letter}  {label}" for letter, label, _ in lines]
    columns = {
        "": names,
        "impl": [str(entry["impl"] or NOTHING) for entry in entries],
        "regime": [str(entry["regime"] or NOTHING) for entry in entries],
        "median ms": [milliseconds(entry) for entry in entries],
        "10th–90th percentile": [interval(entry) for entry in entries],
        "clean rounds": [str(clean_rounds(entry)) for entry in entries],
        "cache": [str(entry.get("cache") or NOTHING) for entry in entries],
    }
    widths = {
        head: max(widest(cells), widest([head]) if head != "10th–90th percentile" else 0)
        for head, cells in columns.items()
    }
    rest = sum(widths.values()) - widths[""] + 2 * len(widths)
    widths[""] = max(12, min(widths[""], width - rest))
    found = [
        GridColumn(head, cells, widths[head], right="ms" in head or "clean" in head) for head, cells in columns.items()
    ]
    return [line.text for line in grid(found)]


def _lane(entry: Entry, among: Sequence[Entry]) -> str:
    """ " (compile, host)" where there are several."""
    return f" ({', '.join(filter(None, (entry['impl'], entry['regime'])))})" if len(among) > 1 else ""


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    """ "0.939 [0.909, 0.970] over 5 processes, 150 rounds"."""
    if ratio is None:
        return "not known"
    known = ratio["low"] is not None and ratio["high"] is not None
    interval = f" [{ratio['low']:.3f}, {ratio['high']:.3f}]" if known else ""
    data = f"{plural(ratio['processes'], 'process')}, {plural(ratio['rounds'], 'clean round')}"
    return f"{ratio['value']:.3f}{interval} over {data}"


def _notes(rows: Sequence[Mapping[str, Any]], entries: Sequence[Sequence[Entry]]) -> Iterator[str]:
    for row, found in zip(rows, entries, strict=True):
        for entry in found:
            yield from cautions(entry, row["error"])
            yield from filter(None, [compilation(entry)])


def _watched(track: Mapping[str, Any], process: Mapping[str, Any]) -> Sequence[str | None]:
    found: Sequence[str | None] = track["disturbed"] or process["disturbed"]
    return found


def _surroundings(document: Document, width: int) -> Iterator[str]:
    """What was measured on, with what, and how much of the time nothing else ran."""
    on = document["environment"]["measured_on"]
    processes = [process for measured in document["measurements"] for process in measured["processes"]]
    samples = [why for process in processes for track in process["tracks"] for why in _watched(track, process)]
    guards = ", ".join(dict.fromkeys(process["guard"] for process in processes)) or "nothing"
    threads = plural(on["threads"], "thread")
    precision = on["precision"]["float32_matmul"]
    yield from wrap(
        printable(f"measured on {on['device_name']} ({on['device']}), {threads}, torch {on['torch']}"), width, HANG
    )
    yield from wrap(
        f"float32 products: {precision}; watched: {guards}; {samples.count(None)} of {len(samples)} samples clean",
        width,
        HANG,
    )
