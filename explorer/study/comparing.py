"""Several blueprints, or results of earlier runs, put together as one result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from explorer.blueprint.blueprint import Blueprint
from explorer.errors import UsageError
from explorer.study.one_by_one import shortest_table
from explorer.study.result import Result
from explorer.study.run import OnProgress, run

AXIS = "blueprint"
MOST_BESIDE = 6
"""Rows that are compared with the first one, field by field; more are a table of numbers."""

SESSIONS = "measured in different sessions: not compared"
_BESIDE_OTHERS = ("verdict", "ratio", "rank")

Document = Mapping[str, Any]


def compare(blueprints: Sequence[Blueprint], on_progress: OnProgress) -> Iterator[Document]:
    """The result of each, on workloads that are the same for all: the shortest learned table of any cuts them."""
    plans = [row.plan for one in blueprints for row in one.combinations().rows if row.plan is not None]
    tokens = shortest_table(plans)
    for done, blueprint in enumerate(blueprints):
        on_progress("counting blueprints", done, len(blueprints))
        yield run(blueprint, audit=0, default_tokens=tokens).to_dict()
    on_progress("counting blueprints", len(blueprints), len(blueprints))


def join(documents: Sequence[Document]) -> Result:
    """One document with the rows of all, told by the names of their blueprints; of a few the first is the baseline.

    Times stay, what each run said of them beside its own baseline goes: sessions are not compared. `runs` holds the
    environment and the measurements of each, `environment` what is the same in all.
    """
    names = _told_apart([document["blueprint"]["name"] for document in documents])
    rows = [row for name, document in zip(names, documents, strict=True) for row in _rows(name, document)]
    for index, row in enumerate(rows):
        row["id"] = f"{index:x}-{row['id']}"  # two files may say the same
    few = len(rows) <= MOST_BESIDE
    base = next((row["id"] for row in rows if few and row["skipped"] is None), None)
    for row in rows:
        row["baseline"], row["baseline_id"] = row["id"] == base, base
    axes = {AXIS: names}
    for document in documents:
        axes |= {axis: list(dict.fromkeys([*axes.get(axis, []), *v])) for axis, v in document["axes"].items()}
    return Result(
        {
            "schema": 1,
            "blueprint": {"name": "comparison", "path": None, "digest": None},
            "environment": _common([document["environment"] for document in documents]),
            "runs": [_session(name, document) for name, document in zip(names, documents, strict=True)],
            "axes": axes,
            "counts": _sums([document["counts"] for document in documents]),
            "differences": _differences(rows) if few else [],
            "combinations": rows,
        }
    )


def read_run(folder: Path) -> Document:
    """The result that `explorer run --out` left in a folder.

    Raises: UsageError where there is none.
    """
    file = folder / "result.json"
    if not file.exists() and (folder / "costs.parquet").exists():
        raise UsageError(f"{folder}: a study of too many rows to set side by side; its costs.parquet holds them")
    if not file.exists():
        what = "name a folder that was written by it, a blueprint's file, or a published blueprint"
        raise UsageError(f"{folder}: this folder holds no result of `explorer run --out`; {what}")
    try:
        document: Document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: the file cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # of JSON, or of UTF-8
        raise UsageError(f"{file}: no result of `explorer run --out`: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != 1 or "combinations" not in document:
        raise UsageError(f"{file}: not a result of this version")
    return document


def _told_apart(names: Sequence[str]) -> list[str]:
    """The names, numbered where one comes twice."""
    counted = {name: names.count(name) for name in names}
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if counted[name] == 1 else f"{name} ({seen[name]})")
    return told


def _rows(name: str, document: Document) -> Iterator[dict[str, Any]]:
    for row in document["combinations"]:
        label = f"{name}, {row['label']}" if document["axes"] else name
        costs = [_cost(name, cost) for cost in row["costs"]]
        yield {**row, "label": label, "choices": {AXIS: name, **row["choices"]}, "costs": costs}


def _cost(name: str, cost: Mapping[str, Any]) -> dict[str, Any]:
    entries = [_alone(name, entry) for entry in cost["latencies"]]
    return {**cost, "latencies": entries, "latency": entries[0] if entries else None}


def _alone(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """A measured entry without what was said of it beside others of its session."""
    if entry["source"] != "measured":
        return dict(entry)
    told = {key: None for key in _BESIDE_OTHERS if key in entry}
    reason = entry["reason"] if entry["median_ms"] is None else SESSIONS
    return {**entry, **told, "reason": reason, "session": name}


def _session(name: str, document: Document) -> dict[str, Any]:
    """What a run says of where it was measured, and all that its times follow from; rows by their ids in that run."""
    measurements = {"measurements": document["measurements"]} if "measurements" in document else {}
    return {"name": name, "environment": document["environment"], **measurements}


def _common(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all say, with the same value."""
    first, *others = environments
    return {key: value for key, value in first.items() if all(key in one and one[key] == value for one in others)}


def _sums(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {key: sum(count[key] for count in counts) for key in counts[0]}


def _differences(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields in which the resolved blueprints differ, with the value of each row; null where it has none."""
    flat = [dict(_leaves(row["resolved"], "")) for row in rows]
    paths = dict.fromkeys(path for one in flat for path in one)
    values = ((path, [one.get(path) for one in flat]) for path in paths)
    return [{"path": path, "values": found} for path, found in values if any(v != found[0] for v in found)]


_NAMES = frozenset({"name", "workloads"})


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            if path or key not in _NAMES:
                yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value
