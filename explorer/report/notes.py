"""What stands below the tables: what failed, was skipped or is not known, and what the numbers mean."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from explorer.registry.words import written_text
from explorer.report.audit import audit_lines, confirmed
from explorer.report.breakdown import BYTES_ARE, OPERATIONS_ARE, PARTS
from explorer.report.columns import MEMORY
from explorer.report.document import Combination, Document, skipped, survivors, workloads
from explorer.report.latency_notes import compilations, doubts, protocols, sums_of_parts, undecided, verdicts
from explorer.report.naming import namer
from explorer.report.rows import Row, are_compared, rows_of
from explorer.report.timing import latencies
from explorer.report.units import NOTHING, PARAMS, plural, printable, short
from explorer.study.comparing import AXIS, MOST_BESIDE

LONGEST = 20
"""Lines of one note, and names in one line, that are shown; JSON and CSV hold all."""

Reasons = Iterable[tuple[Combination, str | None]]


@dataclass(frozen=True)
class Note:
    """A head word and its lines."""

    head: str
    lines: tuple[str, ...]


def notes(
    document: Document, *, breakdown: bool = False, left_out: Iterable[str] = (), shown: Set[str] | None = None
) -> list[Note]:
    """The notes of a result that have something to say, most urgent first.

    breakdown: it is shown too. left_out: headers of columns that had no room in some table. shown: those that had in
    some; None: all.
    """
    rows = [row for workload in workloads(document) for row in rows_of(document, workload)]
    counted, names = survivors(document), _Names(document)
    found = {
        "audit failed": audit_lines(document),
        "failed": names.grouped((c, c["error"]) for c in counted),
        "skipped": _skipped(document, names),
        "warning": names.grouped((c, said) for c in counted for said in c.get("warnings", ())),
        "* incomplete, a lower bound": names.grouped(_uncounted(counted)),
        "unknown": names.grouped(_unknown(counted)),
        "shown": _excerpt(document.get("excerpt")),
        "combinations": _combinations(document["counts"]),
        "Δ": [*_baseline(rows, names, "excerpt" in document), *_no_baseline(document)],
        "differences": [_difference(found) for found in document.get("differences", ())],
        "blocks": [names.before(c, _composition(c["params"]["blocks"])) for c in counted if _is_uneven(c)],
        "shared": names.grouped(_shared(counted)),
        "matmul FLOPs": _convention(rows),
        "memory": _memory(rows) if shown is None or shown & MEMORY.keys() else [],
        "part": [PARTS] if breakdown else [],
        "elementwise ops": [OPERATIONS_ARE] if breakdown else [],
        "bytes": [BYTES_ARE] if breakdown else [],
        "latency": protocols(rows),
        "verdict": [*verdicts(document, rows), *names.grouped(undecided(rows))],
        "sum of parts": sums_of_parts(document),
        "compiling": names.grouped(compilations(rows)),
        "latency, with care": [*document.get("prediction_notes", ()), *names.grouped(doubts(rows))],
        "environment": _environments(document) if latencies(rows) else [],
        "left out": [f"{'; '.join(left_out)} (a wider terminal or --format md shows all)"] if left_out else [],
        "audit": confirmed(document.get("audit")),
    }
    return [Note(head, _cut(lines)) for head, lines in found.items() if lines]


class _Names:
    """Puts the names of combinations to what is said about them; a result of one row needs none."""

    def __init__(self, document: Document) -> None:
        self.of = namer(document)
        self._alone = len(document["combinations"]) == 1
        self._all = {self.of(combination) for combination in survivors(document)}

    def before(self, combination: Combination, text: str) -> str:
        """ "name: text"."""
        return text if self._alone else f"{self.of(combination)}: {text}"

    def grouped(self, reasons: Reasons) -> list[str]:
        """ "reason (name; name)" for each distinct reason; only the reason where it holds for all rows."""
        groups: dict[str, dict[str, None]] = {}
        for combination, reason in reasons:
            if reason:
                groups.setdefault(printable(reason), {})[self.of(combination)] = None
        return [
            reason if self._alone or names.keys() == self._all else f"{reason} ({_some(list(names))})"
            for reason, names in groups.items()
        ]


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    if len(lines) <= LONGEST:
        return tuple(lines)
    return (*lines[:LONGEST], f"and {len(lines) - LONGEST:,} more (all of them: --format json)")


def _some(names: Sequence[str]) -> str:
    if len(names) <= LONGEST:
        return "; ".join(names)
    return f"{'; '.join(names[:LONGEST])}; and {len(names) - LONGEST:,} more"


def _uncounted(combinations: Iterable[Combination]) -> Reasons:
    return ((c, f"{op} is not counted") for c in combinations for cost in c["costs"] for op in cost["incomplete"])


def _unknown(combinations: Iterable[Combination]) -> Reasons:
    for combination in combinations:
        if combination["params"]["active"] is None and combination["params"].get("active_reason"):
            yield combination, f"active params: {combination['params']['active_reason']}"
        yield from ((combination, note) for cost in combination["costs"] for note in cost.get("notes", ()))


def _combinations(counts: Mapping[str, int]) -> list[str]:
    if counts["product"] == counts["rows"]:
        return []
    merged = f"{counts['merged']:,} equal to another row" if counts["merged"] else ""
    refused = f"{counts['skipped']:,} skipped" if counts["skipped"] else ""
    parts = [f"{counts['product']:,} in the product", plural(counts["rows"], "row"), refused, merged]
    return [", ".join(part for part in parts if part)]


def _skipped(document: Document, names: _Names) -> list[str]:
    """Each reason with its rows; of many rows, which stand in no note, with their number."""
    if "skipped_reasons" not in document:
        return names.grouped((c, c["skipped"]) for c in skipped(document))
    return [f"{printable(one['reason'])} ({plural(one['rows'], 'row')})" for one in document["skipped_reasons"]]


def _excerpt(part: Mapping[str, Any] | None) -> list[str]:
    if part is None:
        return []
    rest = f"all are in {part['file']}" if "file" in part else "--out DIR writes all as costs.parquet"
    return [printable(f"the first {part['rows']:,} of {plural(part['of'], 'row')}; {rest}")]


def _baseline(rows: Sequence[Row], names: _Names, in_part: bool) -> list[str]:
    if not are_compared(rows):
        return []
    baselines = list(dict.fromkeys(names.of(row.combination) for row in rows if row.is_baseline))
    lines = ["each row against the baseline row that shares its other choices"]
    if len(baselines) == 1:
        lines = [f"against {baselines[0]}"]
    if any(row.base is None for row in rows):
        there = "the baseline row is not among those shown" if in_part else "there is no baseline row to compare with"
        lines.append(f"{NOTHING}: {there}")
    return lines


def _no_baseline(document: Document) -> list[str]:
    """Why blueprints side by side are not compared with the first, where they are many."""
    if AXIS not in document["axes"] or len(document["combinations"]) <= MOST_BESIDE:
        return []
    return [f"none: of more than {MOST_BESIDE} rows side by side no row is the baseline"]


def _difference(found: Mapping[str, Any]) -> str:
    """ "attention.gqa.kv_heads: 8 | 32"."""
    return printable(f"{found['path']}: {' | '.join(map(written_text, found['values']))}")


def _is_uneven(combination: Combination) -> bool:
    params = combination["params"]
    return params["block"] is None and len(params["blocks"]) > 1


def _composition(blocks: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{printable(b['name'])} {b['layers']:,} × {short(b['params'], PARAMS)}" for b in blocks)


def _shared(combinations: Iterable[Combination]) -> Reasons:
    for combination in combinations:
        if amount := combination["params"]["shared"]:
            yield combination, f"{amount:,} parameters used again, counted once"


def _convention(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    return [
        "matrix products only, 1 multiply-add = 2 FLOPs; dense: every query-key pair (mask not exploited), "
        "exact: only the pairs that a query may see"
    ]


def _memory(rows: Sequence[Row]) -> list[str]:
    """Whose kernels it is of."""
    if all(row.memory("peak") is None for row in rows):
        return []
    text = "as torch's eager kernels of a CPU hold it"
    if any(row.cost["workload"]["phase"] == "train" for row in rows):
        text += "; on CUDA attention with dropout keeps no scores, and a dropout's mask is 1 byte for each element"
    return [text]


def _environments(document: Document) -> list[str]:
    """What all runs have in common, and of each what the others do not have."""
    common = _plain(document["environment"])
    runs = {run["name"]: _plain(run["environment"]) for run in document.get("runs", ())}
    own = {name: [entry for entry in found if entry not in common] for name, found in runs.items()}
    lines = [", ".join(common), *(f"{name}: {', '.join(entries)}" for name, entries in own.items() if entries)]
    return [printable(line) for line in lines if line]


def _plain(environment: Mapping[str, Any]) -> list[str]:
    """The plain entries, those of the measured device included."""
    entries = {**environment, **environment.get("measured_on", {})}
    return [f"{key} {value}" for key, value in entries.items() if isinstance(value, str | int | float)]
