"""Our handles for fvcore: multiply-adds of the products that it leaves out, or counts by another rule.

A handle gets the inputs and outputs of one node of torch's trace.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from math import prod
from typing import Any

from explorer.cost.crosscheck.formulas import FORMULAS

Handle = Callable[[list[Any], list[Any]], int]


def handles(unsupported: Iterable[str], composed: Container[str]) -> dict[str, Handle | None]:
    """{operator: handle, or None where it holds no product}.

    unsupported: what a first analysis had no handle for. composed: those that torch makes of products.
    """
    found: dict[str, Handle | None] = dict.fromkeys(_NORMS, _nothing)
    found |= {op: None for op in unsupported if _is_free(op) and op not in composed}
    return {**found, **PRODUCTS}


def _is_free(op: str) -> bool:
    return op.startswith("aten::") and op.removesuffix("_") not in FORMULAS


def _nothing(inputs: list[Any], outputs: list[Any]) -> int:
    """Operations, but no products."""
    return 0


def _attention(inputs: list[Any], outputs: list[Any]) -> int:
    """(k + v) for each head, query and key."""
    query, key, out = _shape(inputs[0]), _shape(inputs[1]), _shape(outputs[0])
    return prod(out[:-1]) * key[-2] * (query[-1] + out[-1])


def _contracts(place: int) -> Handle:
    """Outputs x K, the last axis of the argument at `place`."""

    def handle(inputs: list[Any], outputs: list[Any]) -> int:
        return prod(_shape(outputs[0])) * _shape(inputs[place])[-1]

    return handle


def _einsum(inputs: list[Any], outputs: list[Any]) -> int:
    """The product of all axes of two operands, to the last digit."""
    equation, operands = inputs[0].toIValue(), [_shape(value) for value in inputs[1].node().inputs()]
    return FORMULAS["aten::einsum"]({"equation": equation, "tensors": operands}, None) // 2


def _addbmm(inputs: list[Any], outputs: list[Any]) -> int:
    batch, _, inner = _shape(inputs[1])
    return prod(_shape(outputs[0])) * batch * inner


def _grouped(inputs: list[Any], outputs: list[Any]) -> int:
    """Rows x K x N: each row meets the matrix of its group."""
    return prod(_shape(inputs[0])) * _shape(inputs[1])[-1]


def _shape(value: Any) -> list[int]:
    shape: list[int] = value.type().sizes()
    return shape


PRODUCTS: Mapping[str, Handle] = {
    "aten::scaled_dot_product_attention": _attention,
    "aten::matmul": _contracts(0),
    "aten::einsum": _einsum,
    "aten::mv": _contracts(0),
    "aten::dot": _contracts(0),
    "aten::vdot": _contracts(0),
    "aten::addmv": _contracts(1),
    "aten::baddbmm": _contracts(1),
    "aten::baddbmm_": _contracts(1),
    "aten::addbmm": _addbmm,
    "aten::_grouped_mm": _grouped,
    "explorer::grouped": _grouped,
}
_NORMS = tuple(f"aten::{name}_norm" for name in ("layer", "batch", "group", "instance"))
