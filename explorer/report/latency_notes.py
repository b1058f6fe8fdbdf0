"""What must be known of latencies to read them: where they come from, and why some say little."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from explorer.report.rows import Row
from explorer.report.timing import NOT_MEASURED, PREDICTED, clean_rounds, latencies
from explorer.report.units import plural, printable

Latency = Mapping[str, Any]
Reasons = Iterator[tuple[Mapping[str, Any], str]]


def protocols(rows: Sequence[Row]) -> list[str]:
    """A line for each kind of latency that is shown: how it was measured, or what a prediction rests on."""
    entries = latencies(rows)
    if not entries:
        return [f"{NOT_MEASURED} (run with --measure)"] if rows else []
    lines = (_basis(entry) if entry["source"] == PREDICTED else _protocol(entry) for entry in entries)
    return list(dict.fromkeys(line for line in lines if line))


def verdicts(document: Mapping[str, Any]) -> list[str]:
    """What the words mean, and how far the baseline, measured twice, differed from itself."""
    measured = document.get("measurements") or []
    if not any(entry["baselines"] and any(entry["baselines"].values()) for entry in measured):
        return []
    controls = [ratio["value"] for entry in measured for ratio in entry.get("control_ratios", ())]
    worst = max(controls, key=lambda value: abs(value - 1), default=None)
    own = "" if worst is None else f"; the baseline against itself: {100 * (worst - 1):+.1f}% at most"
    return [f"faster, slower: by more than 3 % with the whole 95 % interval; tie: within 3 %{own}"]


def doubts(rows: Sequence[Row]) -> Reasons:
    """Why a latency of a row is to be read with care."""
    for row in rows:
        for entry in latencies([row]):
            yield from ((row.combination, text) for text in _doubts(entry))


def _doubts(entry: Latency) -> Iterator[str]:
    if entry["source"] == PREDICTED:
        if entry["reason"]:
            yield f"{entry['device']}: {entry['reason']}"
        return
    if entry["median_ms"] is not None and clean_rounds(entry) == 0:
        yield "something else used the device in every round: the times are of disturbed rounds"
    if entry.get("steady") is False:
        yield "the halves of the rounds differ by more than 10 %"
    if entry.get("host_bound"):
        yield "host-bound: launching takes more than 1.2 times as long as the device needs"
    yield from (entry[key] for key in ("sdpa_note", "compile_note") if entry.get(key))
    yield from entry.get("notes") or ()
    if entry["median_ms"] is None and entry.get("regime") and entry["reason"]:
        yield f"{entry['regime']}: {entry['reason']}"


def compilations(rows: Sequence[Row]) -> Reasons:
    """Seconds of compiling, which are in no latency."""
    for row in rows:
        for entry in latencies([row]):
            if entry.get("compile_s") is not None:
                again = plural(entry["recompiles"], "recompile")
                yield row.combination, f"compiled in {entry['compile_s']:.1f} s, {again} while measuring"


def sums_of_parts(document: Mapping[str, Any]) -> list[str]:
    """How far sums of parts are from whole blocks, where parts were measured."""
    found: Iterable[Mapping[str, Any]] = (
        entry["parts"] for entry in document.get("measurements") or () if entry.get("parts")
    )
    return [f"{part['block']}: sums of {part['pieces']} parts; {_error(part)}" for part in found]


def _error(part: Mapping[str, Any]) -> str:
    if part["median_error"] is None:
        return "no whole block was timed"
    median, largest = 100 * part["median_error"], 100 * part["largest_error"]
    return f"against {plural(part['checked'], 'whole block')} off by {median:.1f}% (median), {largest:.1f}% at most"


def _protocol(entry: Latency) -> str:
    if entry["median_ms"] is None:
        return ""
    setting = ", ".join(str(entry[key]) for key in ("impl", "regime", "cache") if entry.get(key))
    return printable(f"measured on {entry['device']}{f' ({setting})' if setting else ''}: {_data(entry)}")


def _data(entry: Latency) -> str:
    if entry.get("of") == "parts":
        return "sum of the medians of parts"
    rounds, processes = entry.get("rounds"), entry.get("processes")
    of = f" of {plural(rounds, 'round')}" if rounds else ""
    over = f" in {processes} fresh process{'es' if processes > 1 else ''}" if processes else ""
    return f"median, low–high from 10th to 90th percentile{of}{over}"


def _basis(entry: Latency) -> str:
    if entry["median_ms"] is None:
        return ""
    return printable(f"predicted on {entry['device']} ({entry['impl']}, {entry['regime']}): {entry['basis']}")
