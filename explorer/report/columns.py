"""The measures of a comparison table, in reading order, each with its unit and its rank for narrow screens."""

from collections.abc import Sequence
from functools import partial

from explorer.report.column import Column, change, figures
from explorer.report.document import Workload, passes
from explorer.report.rows import Row, are_compared
from explorer.report.timing import stand_apart, timing_columns
from explorer.report.units import BYTES, OPERATIONS, PARAMS, UNEVEN, UNKNOWN, Steps, exact, share, short
from explorer.study.comparing import AXIS

INCOMPLETE = "*"
SAYS_NOTHING = 15
"""The rank of a column that repeats another one."""


def measures(rows: Sequence[Row], workload: Workload) -> list[Column]:
    """Parameters, operations, bytes, memory and latency of the rows, with differences where there is a baseline.

    Latencies only where they do not stand apart.
    """
    compared = are_compared(rows)
    return [
        *(_shape(rows) if any(AXIS in row.combination["choices"] for row in rows) else []),
        *_parameters(rows, compared=compared),
        *_operations(rows, passes(workload), compared=compared),
        *(_cache(rows, compared=compared) if workload["phase"] != "train" else []),
        *_elementwise(rows, compared=compared),
        *_memory(rows, workload),
        figures("weight bytes", rows, lambda row: short(row.count("weight_bytes"), BYTES), 12),
        *([] if stand_apart(rows) else timing_columns(rows, compared=compared)),
    ]


def _shape(rows: Sequence[Row]) -> list[Column]:
    """Where whole blueprints are compared: how large each is, and what a token costs it."""
    return [
        figures("dim", rows, lambda row: exact(row.combination["resolved"].get("dim")), 10),
        figures("layers", rows, _layers, 10),
        figures("heads", rows, _heads, 11),
        figures("dense matmul FLOPs/token", rows, _per_token, 6),
        *(_share(kind, rows) for kind in ("attention", "feedforward")),
    ]


def _share(kind: str, rows: Sequence[Row]) -> Column:
    """What a kind of part takes of the dense matrix products."""

    def cell(row: Row) -> str:
        return share(row.of_kind(kind, "matmul_flops"), row.count("matmul_flops"))

    return figures(f"{kind} % of FLOPs", rows, cell, 12)


def _layers(row: Row) -> str:
    """32, or 6+6 of an encoder and a decoder."""
    depths: dict[bool, int] = {}
    for block in row.combination["params"]["blocks"]:
        in_encoder = block["name"].startswith("encoder.")
        depths[in_encoder] = depths.get(in_encoder, 0) + block["layers"]
    return "+".join(str(depths[side]) for side in (True, False) if side in depths)


def _heads(row: Row) -> str:
    """Query heads, and behind a slash the key and value heads where the attention of the stack has a number of them."""
    resolved = row.combination["resolved"]
    resolved = resolved if "heads" in resolved else resolved.get("decoder") or {}
    attention = resolved.get("attention")
    parameters: dict[str, object] = next(iter(attention.values()), {}) if isinstance(attention, dict) else {}
    kv_heads = parameters.get("kv_heads")
    heads = resolved.get("heads", UNKNOWN)
    return f"{heads}/{kv_heads}" if kv_heads else str(heads)


def _per_token(row: Row) -> str:
    flops, workload = row.count("matmul_flops"), row.cost["workload"]
    return short(None if flops is None else flops // (workload["batch"] * workload["tokens"]), OPERATIONS)


def _parameters(rows: Sequence[Row], *, compared: bool) -> list[Column]:
    models = any(row.part == "model" for row in rows)
    columns = [figures("model params" if models else "params", rows, lambda row: short(row.params, PARAMS), 0)]
    if compared:
        columns.append(change("Δ params", rows, lambda row: row.params, 1, mark="baseline"))
    if any(row.active != row.params for row in rows) and not _several_parts(rows):
        columns.append(figures("active params", rows, lambda row: short(row.active, PARAMS), 5))
    if models:
        columns.append(figures("block params", rows, _block_params, 6))
    return columns


def _several_parts(rows: Sequence[Row]) -> bool:
    # `params.active` is one number for a combination: beside rows of several blocks it would belong to none.
    return len({row.part for row in rows}) > 1


def _block_params(row: Row) -> str:
    blocks = row.combination["params"]["blocks"]
    return UNEVEN if row.block_params is None and len(blocks) > 1 else short(row.block_params, PARAMS)


def _operations(rows: Sequence[Row], covered: str, *, compared: bool) -> list[Column]:
    columns = [figures(f"matmul FLOPs {covered}, dense", rows, lambda row: _flops(row, "matmul_flops"), 2)]
    if compared:
        columns.append(change("Δ FLOPs", rows, lambda row: row.count("matmul_flops"), 7))
    exact_rank = 4 if _masks_tell(rows) else SAYS_NOTHING
    header = f"matmul FLOPs {covered}, exact"
    columns.append(figures(header, rows, lambda row: _flops(row, "matmul_flops_exact"), exact_rank))
    if compared and not _vary(rows, "matmul_flops") and _vary(rows, "matmul_flops_exact"):
        # Windows and masks change what is visible, not the rectangle: the other Δ would say that nothing differs.
        columns.append(change("Δ exact", rows, lambda row: row.count("matmul_flops_exact"), 5))
    return columns


def _masks_tell(rows: Sequence[Row]) -> bool:
    """Whether what masks hide makes a difference anywhere."""
    return any(row.count("matmul_flops_exact") != row.count("matmul_flops") for row in rows)


def _vary(rows: Sequence[Row], key: str) -> bool:
    return len({row.count(key) for row in rows}) > 1


def _flops(row: Row, key: str) -> str:
    value = row.count(key)
    mark = INCOMPLETE if value is not None and row.cost["incomplete"] else ""
    return short(value, OPERATIONS) + mark


def _elementwise(rows: Sequence[Row], *, compared: bool) -> list[Column]:
    """What a swapped norm or activation changes: ahead of others where matrix products do not tell rows apart."""
    telling = len(rows) > 1 and not _vary(rows, "matmul_flops") and not _vary(rows, "matmul_flops_exact")
    columns = []
    for header, key, steps, rank in _ELEMENTWISE:
        rank = rank - _MORE_TELLING if telling and _vary(rows, key) else rank
        columns.append(figures(header, rows, partial(_figure, key, steps), rank))
        if compared and key == "moved_bytes":
            columns.append(change("Δ moved", rows, lambda row: row.count("moved_bytes"), rank + 1))
    return columns


_ELEMENTWISE: tuple[tuple[str, str, Steps | None, int], ...] = (
    ("elementwise ops", "elementwise_ops", OPERATIONS, 13),
    ("moved bytes", "moved_bytes", BYTES, 11),
    ("fused bytes", "fused_bytes", BYTES, 14),
    ("kernels", "kernels", None, 12),
)
_MORE_TELLING = 8


def _figure(key: str, steps: Steps | None, row: Row) -> str:
    value = row.count(key)
    # Of an operator without a rule the bytes and the kernel are known, what it computes is not.
    mark = INCOMPLETE if key == "elementwise_ops" and value is not None and row.cost["incomplete"] else ""
    return (exact(value) if steps is None else short(value, steps)) + mark


MEMORY = {
    "peak memory": ("peak", 11),
    "saved for backward": ("activations", 12),
    "inference peak": ("inference_peak", 14),
}
"""Columns of memory: the key of each, and its rank."""


def _memory(rows: Sequence[Row], workload: Workload) -> list[Column]:
    """The peak, and what training keeps for its backward; nothing where no row knows."""
    return [
        figures(header, rows, partial(_held, key), rank)
        for header, (key, rank) in MEMORY.items()
        if (key == "peak" or workload["phase"] == "train") and any(row.memory(key) is not None for row in rows)
    ]


def _held(key: str, row: Row) -> str:
    return short(row.memory(key), BYTES)


def _cache(rows: Sequence[Row], *, compared: bool) -> list[Column]:
    growth, full, held = "kv_bytes_per_token", "kv_bytes_per_token_full_windows", "kv_cache_bytes"
    # Where growth is the same in all rows, what they hold is what tells them apart.
    first, second = (3, 8) if _vary(rows, growth) or not _vary(rows, held) else (8, 3)
    columns = [figures("KV bytes/token", rows, lambda row: exact(row.count(growth)), first)]
    if any(row.count(full) != row.count(growth) for row in rows):
        columns.append(figures("KV bytes/token, windows full", rows, lambda row: exact(row.count(full)), 9))
    columns.append(figures("KV cache bytes", rows, lambda row: short(row.count(held), BYTES), second))
    if compared:
        columns.append(change("Δ KV cache", rows, lambda row: row.count(held), 9))
    return columns
