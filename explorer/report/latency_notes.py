"""What must be known of latencies to read them: where they come from, and why some say little."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from explorer.report.rows import Row
from explorer.report.timing import NOT_MEASURED, PREDICTED, clean_rounds, latencies
from explorer.report.units import plural, printable

Latency = Mapping[str, Any]
Reasons = Iterator[tuple[Mapping[str, Any], str | None]]

_WORDS = {
    "faster": "faster, slower: by more than 3 % with the whole 95 % interval",
    "slower": "faster, slower: by more than 3 % with the whole 95 % interval",
    "tie": "tie: within 3 % with the whole interval",
    "small": "small: they differ, but perhaps by less than 3 %",
    "unclear": "unclear: the data carry no other word",
    "contended": "contended: too few rounds in which nothing else used the device",
}
"""What each verdict means."""
_UNDECIDED = ("unclear", "contended", "no verdict")


def protocols(rows: Sequence[Row]) -> list[str]:
    """A line for each kind of latency that is shown: how it was measured, or what a prediction rests on."""
    entries = latencies(rows)
    if not entries:
        return [f"{NOT_MEASURED} (run with --measure)"] if rows else []
    lines = (_basis(entry) if entry["source"] == PREDICTED else _protocol(entry) for entry in entries)
    return list(dict.fromkeys(line for line in lines if line))


def verdicts(document: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """What the words that are shown mean, and how far the baseline, measured twice, differed from itself."""
    shown = {entry.get("verdict") for entry in latencies(rows)}
    meanings = list(dict.fromkeys(meaning for word, meaning in _WORDS.items() if word in shown))
    controls = [
        ratio["value"] for entry in document.get("measurements") or () for ratio in entry.get("control_ratios", ())
    ]
    worst = max(controls, key=lambda value: abs(value - 1), default=None)
    if worst is not None and meanings:
        meanings.append(f"the baseline against itself: {100 * (worst - 1):+.1f}% at most")
    return ["; ".join(meanings)] if meanings else []


def undecided(rows: Sequence[Row]) -> Reasons:
    """Why a time that was measured has no verdict, or one that decides nothing."""
    lanes = {(entry.get("impl"), entry.get("regime")) for entry in latencies(rows) if _is_timed(entry)}
    for row in rows:
        for entry in latencies([row]):
            word = entry.get("verdict") or "no verdict"
            if _is_timed(entry) and word in _UNDECIDED and entry.get("reason"):
                where = f" ({entry['impl']}, {entry['regime']})" if len(lanes) > 1 else ""
                yield row.combination, f"{word}{where}: {_without_ratio(entry['reason'])}"


def _is_timed(entry: Latency) -> bool:
    return entry["source"] != PREDICTED and entry["median_ms"] is not None


def _without_ratio(reason: str) -> str:
    """ "+2.1 % [-1.0 %, +5.2 %]: neither within ..." -> "neither within ...": the numbers stand in the table."""
    return reason.rpartition("%]: ")[2]


def doubts(rows: Sequence[Row]) -> Reasons:
    """Why a latency of a row is to be read with care, or is not there."""
    for row in rows:
        for entry in latencies([row]):
            yield from ((row.combination, text) for text in cautions(entry, row.combination["error"]))


def cautions(entry: Latency, error: str | None) -> Iterator[str]:
    """Why an entry is to be read with care, or has no times, where the error of its row does not say so."""
    if entry["source"] == PREDICTED:
        if entry["reason"]:
            yield f"{entry['device']}: {entry['reason']}"
        return
    if entry["median_ms"] is None:
        if entry["reason"] and entry["reason"] not in (error or ""):
            lane = ", ".join(entry[key] for key in ("impl", "regime") if entry.get(key))
            yield f"{lane}: {entry['reason']}" if lane else entry["reason"]
    elif clean_rounds(entry) == 0:
        yield "something else used the device in every round: the times are of disturbed rounds"
    if entry.get("steady") is False:
        yield "the halves of the rounds differ by more than 10 %"
    if entry.get("host_bound"):
        yield "host-bound: launching takes more than 1.2 times as long as the device needs"
    yield from (entry[key] for key in ("sdpa_note", "compile_note") if entry.get(key))
    yield from entry.get("notes") or ()


def compilations(rows: Sequence[Row]) -> Reasons:
    """Seconds of compiling, which are in no latency."""
    for row in rows:
        yield from ((row.combination, compilation(entry)) for entry in latencies([row]))


def compilation(entry: Latency) -> str | None:
    """Seconds of compiling; None where nothing was compiled."""
    if entry.get("compile_s") is None:
        return None
    return f"compiled in {entry['compile_s']:.1f} s, {plural(entry['recompiles'], 'recompile')} while measuring"


def sums_of_parts(document: Mapping[str, Any]) -> list[str]:
    """How far sums of parts are from whole blocks, where parts were measured, in this run or in runs side by side."""
    found = [entry["parts"] for run in (document, *document.get("runs", ())) for entry in _with_parts(run)]
    return list(dict.fromkeys(f"{part['block']}: sums of {part['pieces']} parts; {_errors(part)}" for part in found))


def _with_parts(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (entry for entry in run.get("measurements") or () if entry.get("parts"))


def _errors(part: Mapping[str, Any]) -> str:
    """Of each implementation and regime, which it names where there are several."""
    lanes = part.get("lanes") or ([part] if part["median_error"] is not None else [])
    told = [_error(lane, f"{lane['impl']}, {lane['regime']}: " if len(lanes) > 1 else "") for lane in lanes]
    return "; ".join(told) or "no whole block was timed"


def _error(lane: Mapping[str, Any], where: str) -> str:
    median, largest, blocks = 100 * lane["median_error"], 100 * lane["largest_error"], lane["checked"]
    against = f"{where}against {plural(blocks, 'whole block')}"
    return f"{against} off by {median:.1f}% (median), {largest:.1f}% at most"


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
    over = f" in {plural(processes, 'fresh process')}" if processes else ""
    return f"median, low–high from 10th to 90th percentile{of}{over}"


def _basis(entry: Latency) -> str:
    if entry["median_ms"] is None:
        return ""
    return printable(f"predicted on {entry['device']} ({entry['impl']}, {entry['regime']}): {entry['basis']}")
