"""An audit that failed, in words: which number is no sum of its parts, and what that means."""

from collections.abc import Mapping
from typing import Any

from explorer.report.document import Document, workload_text
from explorer.report.naming import namer
from explorer.report.units import exact, plural, printable

MEANING = (
    "numbers are sums over parts that are looked at once; where a pass of the whole says something else, that number "
    "is wrong in this row and may be wrong in every row with that part. Do not use it; please report it"
)


def audit_lines(document: Document) -> list[str]:
    """A line for each number that differs, and one that says what it means; none where all are equal."""
    audit = document.get("audit") or {}
    found = audit.get("mismatches", ())
    if not found:
        return []
    rows = len({mismatch["id"] for mismatch in found})
    name = namer(document)
    names = {row["id"]: name(row) for row in document["combinations"]}
    head = f"{plural(len(found), 'number')} in {rows:,} of {plural(audit['rows'], 'audited row')}"
    return [f"{head}: {MEANING}", *(_line(mismatch, names) for mismatch in found)]


def _line(mismatch: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """ "row c0ffee12 (rmsnorm), model, prefill, ..., 0.attention.branch: kernels 9 as a sum of parts, 10 in a pass"."""
    row = f"row {mismatch['id']}" + (f" ({names[mismatch['id']]})" if mismatch["id"] in names else "")
    part = mismatch["part"] or "between parts"
    where = f"{row}, {mismatch['name']}, {workload_text(mismatch['workload'])}, {part}"
    summed, whole = (_value(mismatch[key]) for key in ("summed", "whole"))
    return printable(f"{where}: {mismatch['number']} {summed} as a sum of parts, {whole} in a pass of the whole")


def _value(value: object) -> str:
    return exact(value) if isinstance(value, int | float) else str(value)
