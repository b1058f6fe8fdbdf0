"""An audit in words: what it confirmed, or which number is no sum of its parts, and what that means."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from explorer.report.document import Document, workload_text
from explorer.report.naming import namer
from explorer.report.units import exact, plural, printable

MEANING = (
    "numbers are sums over parts that are looked at once; where a pass of the whole says something else, that number "
    "is wrong in this row and may be wrong in every row with that part. Do not use it; please report it"
)
CONFIRMED = (
    "equal: parameters, bytes of weights and of a filled cache, and every count of every part; not compared: active "
    "parameters, activations, peaks, growth of a cache"
)
ANEW = "counted anew, each layer by itself: layers that look alike do not do the same here"

Mismatch = Mapping[str, Any]


def audit_head(document: Document) -> list[str]:
    """One line that says how many numbers differ, and what it means; none where all are equal."""
    audit = document.get("audit") or {}
    found = audit.get("mismatches", ())
    if not found:
        return []
    rows = len({mismatch["id"] for mismatch in found})
    return [f"{plural(len(found), 'number')} in {rows:,} of {plural(audit['rows'], 'audited row')}: {MEANING}"]


def audit_lines(document: Document) -> list[str]:
    """The head, and a line for each part with a number that differs; JSON holds all of them."""
    parts: dict[str, list[Mismatch]] = {}
    for mismatch in (document.get("audit") or {}).get("mismatches", ()):
        parts.setdefault(_without_layer(mismatch["part"]), []).append(mismatch)
    name = namer(document)
    names = {row["id"]: name(row) for row in document["combinations"]}
    return [*audit_head(document), *(_line(found, names) for found in parts.values())]


def confirmed(audit: Mapping[str, Any] | None) -> list[str]:
    """What whole passes of some rows confirmed; nothing where they did not."""
    if audit is None or audit["mismatches"]:
        return []
    done, planned = audit["rows"], audit["planned"]
    if not planned:
        return ["no row was traced as a whole (--audit 0)"]
    rows, more = plural(planned, "row"), f"(--audit {planned})"
    if not done:
        return [f"0 of {rows} traced as a whole, it would take too long: no sum is confirmed {more}"]
    traced = f"{rows} traced as a whole" if done == planned else f"{done:,} of {rows} traced as a whole {more}"
    return [f"{traced}; {CONFIRMED}", *([ANEW] if audit.get("anew") else [])]


def _without_layer(part: str) -> str:
    """ "block.7.attention.norm" -> "block.attention.norm"."""
    return re.sub(r"\.\d+(?=\.)", "", part)


def _line(found: Sequence[Mismatch], names: Mapping[str, str]) -> str:
    """ "row c0ffee12 (rmsnorm), model, prefill, ..., 0.attention.branch: kernels 9 as a sum of parts, 10 in a pass"."""
    first = found[0]
    row = f"row {first['id']}" + (f" ({names[first['id']]})" if first["id"] in names else "")
    where = f"{row}, {first['name']}, {workload_text(first['workload'])}, {first['part'] or 'between parts'}"
    summed, whole = (_value(first[key]) for key in ("summed", "whole"))
    text = f"{where}: {first['number']} {summed} as a sum of parts, {whole} in a pass of the whole"
    return printable(text + (f"; {len(found) - 1:,} more of this part" if found[1:] else ""))


def _value(value: object) -> str:
    return exact(value) if isinstance(value, int | float) else str(value)
