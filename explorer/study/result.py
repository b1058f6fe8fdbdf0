"""The result of a study: one document, the JSON of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Result:
    """What ``run`` returns. ``to_dict`` is the document that ``explorer run --format json`` prints."""

    document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.document

    @property
    def failed(self) -> bool:
        """Whether a measurement failed."""
        return any(row["error"] for row in self.document["combinations"])

    def frame(self) -> polars.DataFrame:
        """One row per combination, workload and scope; units stand in the column names."""
        import polars

        rows = [_flat(row, cost) for row in self.document["combinations"] for cost in row["costs"]]
        return polars.DataFrame(rows, infer_schema_length=None)


def _flat(row: dict[str, Any], cost: dict[str, Any]) -> dict[str, Any]:
    params, latency = row["params"], cost["latency"]
    of_block = {block["name"]: block["params"] for block in params["blocks"]}
    return {
        "id": row["id"],
        "label": row["label"],
        **{f"choice:{name}": value for name, value in row["choices"].items()},
        "baseline": row["baseline"],
        "scope": cost["scope"],
        "name": cost["name"],
        **{f"workload:{name}": value for name, value in cost["workload"].items()},
        "params": params["model"] if cost["scope"] == "model" else of_block[cost["name"]],
        "active_params": params["active"],
        **{key: cost[key] for key in _COLUMNS},
        "latency_median_ms": latency["median_ms"] if latency else None,
        "latency_source": latency["source"] if latency else None,
        "latency_device": latency["device"] if latency else None,
        "error": row["error"],
    }


_COLUMNS = (
    *("matmul_flops", "matmul_flops_exact", "elementwise_ops", "moved_bytes", "fused_bytes", "weight_bytes"),
    *("kv_bytes_per_token", "kv_bytes_per_token_full_windows", "kv_cache_bytes", "kernels"),
)
