"""Products of torch's operators from the shapes of their arguments: what a tool's number is held against.

Written by itself, beside the rules of the ledger: two counts that agree say more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import Size

Given = Mapping[str, Any]
"""The arguments of a call by the names of the operator's schema, with shapes in the place of tensors."""

Formula = Callable[[Given, Any], int]
"""(arguments, shape of the result) -> FLOPs, 1 multiply-add = 2."""


def contracts(name: str) -> Formula:
    """2 x outputs x K: K is the last axis of the argument `name`."""
    return lambda given, out: 2 * prod(out) * given[name][-1]


def _matmul(given: Given, out: Size) -> int:
    # A vector on the right has its only axis contracted, as any last axis on the left.
    return 2 * prod(out) * given["self"][-1]


def _einsum(given: Given, out: Size) -> int:
    """2 x the product of all axes, of two operands; one operand is summed or moved: no product."""
    operands = given["tensors"]
    if len(operands) != 2:
        return 0
    terms = given["equation"].replace(" ", "").split("->")[0].split(",")
    sizes = {axis: size for term, shape in zip(terms, operands, strict=True) for axis, size in zip(term, shape)}  # noqa: B905
    return 2 * prod(sizes.values())


def _convolution(given: Given, out: Size) -> int:
    """2 x outputs x C_in / groups x K; transposed: inputs in the place of outputs."""
    places = given["input"] if given.get("transposed") else out
    return 2 * prod(places) * prod(given["weight"][1:])


def _convolution_backward(given: Given, out: Any) -> int:
    asked = sum(given["output_mask"][:2])
    places = given["input"] if given["transposed"] else given["grad_output"]
    return asked * 2 * prod(places) * prod(given["weight"][1:])


def attention(query: Size, key: Size, out: Size) -> int:
    """2 (k + v) FLOPs for each head, query and key: (..., heads, T, k), (..., S, k) -> (..., heads, T, v)."""
    return 2 * prod(out[:-1]) * key[-2] * (query[-1] + out[-1])


def _attention(given: Given, out: Any) -> int:
    return attention(given["query"], given["key"], out if isinstance(out, Size) else out[0])


def _attention_backward(given: Given, out: Any) -> int:
    return 2 * attention(given["query"], given["key"], given["out"])


def grouped(rows: Size, matrices: Size) -> int:
    """2 x rows x K x N: each row meets the matrix of its group."""
    return 2 * prod(rows) * matrices[-1]


def _grouped(left: str, right: str) -> Formula:
    return lambda given, out: grouped(given[left], given[right])


ATTENTION_KERNELS = tuple(
    f"aten::_scaled_dot_product_{kernel}"
    for kernel in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)

FORMULAS: Mapping[str, Formula] = {
    "aten::linear": contracts("input"),
    "aten::matmul": _matmul,
    "aten::mm": contracts("self"),
    "aten::bmm": contracts("self"),
    "aten::mv": contracts("self"),
    "aten::dot": contracts("self"),
    "aten::vdot": contracts("self"),
    "aten::addmm": contracts("mat1"),
    "aten::addmv": contracts("mat"),
    "aten::baddbmm": contracts("batch1"),
    "aten::addbmm": lambda given, out: 2 * prod(out) * given["batch1"][0] * given["batch1"][-1],
    "aten::_addmm_activation": contracts("mat1"),
    "aten::einsum": _einsum,
    "aten::conv1d": _convolution,
    "aten::conv2d": _convolution,
    "aten::conv3d": _convolution,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::scaled_dot_product_attention": _attention,
    "aten::_grouped_mm": _grouped("self", "mat2"),
    "explorer::grouped": _grouped("x", "weight"),
    "explorer::grouped_outer": _grouped("x", "y"),
    **dict.fromkeys(ATTENTION_KERNELS, _attention),
    **{f"{kernel}_backward": _attention_backward for kernel in ATTENTION_KERNELS},
}
