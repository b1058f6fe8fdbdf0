"""FLOPs of the operators that hold a matrix product, by name. What torch composes of these needs no rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import Tensor

from explorer.cost.ledger.products import ATTENTION_KERNELS, Products, attention, by_group, plain, top_left_pairs

Rule = Callable[[Mapping[str, Any], Any], Products]
"""(arguments by the names of the operator's schema, result) -> products."""


def _contracts(name: str) -> Rule:
    """2 x outputs x K, where K is the last axis of the argument `name`."""

    def rule(given: Mapping[str, Any], out: Tensor) -> Products:
        return plain(2 * out.numel() * given[name].shape[-1])

    return rule


def _addbmm(given: Mapping[str, Any], out: Tensor) -> Products:
    """The sum over b of (n, m) @ (m, p): the batch is contracted too."""
    batch, _, inner = given["batch1"].shape
    return plain(2 * out.numel() * batch * inner)


def _by_group(left: str, right: str) -> Rule:
    """Rows and the matrix of their group, or all rows of each group contracted, in the arguments `left` and `right`."""

    def rule(given: Mapping[str, Any], out: Tensor) -> Products:
        return by_group(given[left], given[right])

    return rule


def _convolution(given: Mapping[str, Any], out: Tensor) -> Products:
    """2 x outputs x C_in / groups x K; a transposed one: 2 x inputs x C_out / groups x K."""
    places = given["input"] if given["transposed"] else out
    return plain(2 * places.numel() * prod(given["weight"].shape[1:]))


def _convolution_backward(given: Mapping[str, Any], out: tuple[Tensor, ...]) -> Products:
    """The forward's products once for each gradient asked, of input and weight; the bias's is a sum.

    FlopCounterMode says C / groups times as much for the weight of a grouped convolution.
    """
    asked = sum(given["output_mask"][:2])
    return plain(asked * _convolution(given, given["grad_output"]).dense)


def _attention(given: Mapping[str, Any], out: tuple[Tensor, ...]) -> Products:
    """A fused attention kernel called by itself; its result is the first output."""
    return _kernel(given, out[0])


def _attention_backward(given: Mapping[str, Any], out: tuple[Tensor, ...]) -> Products:
    """Twice the forward: the scores that a kernel recomputes are not counted (FlopCounterMode counts them)."""
    return _kernel(given, given["out"]).times(2)


def _kernel(given: Mapping[str, Any], result: Tensor) -> Products:
    query, key = given["query"], given["key"]
    if given.get("attn_mask") is not None or given.get("attn_bias") is not None:
        return attention(
            result, query, key, None, "an attention kernel got a mask tensor: the pairs it hides are unknown"
        )
    T, S = query.shape[-2], key.shape[-2]
    return attention(result, query, key, top_left_pairs(T, S) if given.get("is_causal") else T * S)


RULES: Mapping[str, Rule] = {
    "aten::mm": _contracts("self"),
    "aten::bmm": _contracts("self"),
    "aten::mv": _contracts("self"),
    "aten::dot": _contracts("self"),
    "aten::vdot": _contracts("self"),
    "aten::addmm": _contracts("mat1"),
    "aten::baddbmm": _contracts("batch1"),
    "aten::addmv": _contracts("mat"),
    "aten::addbmm": _addbmm,
    "aten::_addmm_activation": _contracts("mat1"),
    "aten::_int_mm": _contracts("self"),
    "aten::_scaled_mm": _contracts("self"),
    "aten::_grouped_mm": _by_group("self", "mat2"),
    "aten::_scaled_grouped_mm": _by_group("self", "mat2"),
    "explorer::grouped": _by_group("x", "weight"),
    "explorer::grouped_outer": _by_group("x", "y"),
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    **{f"aten::_scaled_dot_product_{kernel}": _attention for kernel in ATTENTION_KERNELS},
    **{f"aten::_scaled_dot_product_{kernel}_backward": _attention_backward for kernel in ATTENTION_KERNELS},
}
