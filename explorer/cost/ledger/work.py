"""Element-wise operations of an operator: one per output element, in a reduction one per input element.

An operator that is several steps in one kernel counts by a fixed number: see the constants. Casts, copies and gathers
are no operations. A backward counts as any other operator does; that of a softmax or a norm in one kernel counts twice
its forward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import Tensor

from explorer.cost.ledger.products import ATTENTION_KERNELS, top_left_pairs
from explorer.cost.ledger.rows import Work
from explorer.cost.ledger.traffic import Given, tensors

SOFTMAX = Work(cheap=2, transcendental=1, reduction=2)
"""Per element: the maximum, minus it, exp, the sum, divided by it: 5. Also per logit of a cross-entropy, and for each
head per visible query-key pair of an attention."""
LAYER_NORM = Work(cheap=3, reduction=2)
"""Per element: the mean, minus it, square, its mean, times the inverse root: 5; gain and shift 1 more each, so 7."""
RMS_NORM = Work(cheap=2, reduction=1)
"""Per element: square, its mean, times the inverse root: 3; the gain 1 more, so 4. One root for many is left out."""
WEIGHT_NORM = Work(cheap=2, reduction=1)
"""Per element: square, the sum, times gain / root."""
CENTRED = Work(cheap=2)
"""Per element of a batch norm with given statistics: minus the mean, times the inverse root; and gain and shift."""
NOTHING = Work()

Rule = Callable[[Given, Any], Work]


def per_output(given: Given, out: Any) -> Work:
    """One cheap operation for each element of the (first) result."""
    return Work(cheap=_first(out).numel())


def _transcendental(given: Given, out: Any) -> Work:
    return Work(transcendental=_first(out).numel())


def per_input(given: Given, out: Any) -> Work:
    """One for each element of the (first) argument that is reduced."""
    return Work(reduction=_first(tuple(given.values())).numel())


def _power(given: Given, out: Any) -> Work:
    """A square or a cube is a product or two; any other exponent takes exp and log."""
    exponent = given.get("exponent")
    small = isinstance(exponent, int | float) and exponent == int(exponent) and abs(exponent) <= _SMALL
    return per_output(given, out) if small else _transcendental(given, out)


_SMALL = 4
"""Integer exponents up to which kernels multiply."""


def _each(work: Work) -> Rule:
    """So much for each element of the (first) argument."""
    return lambda given, out: work * _first(tuple(given.values())).numel()


def _drawn(given: Given, out: Any) -> Work:
    """One for each number drawn; a dropout in one kernel draws its mask and applies it, scaled: 2 per element."""
    return Work(cheap=sum(tensor.numel() for tensor in tensors(out)))


def _none(given: Given, out: Any) -> Work:
    return NOTHING


def _adds(name: str) -> Rule:
    """One addition for each element that is added somewhere."""
    return lambda given, out: Work(reduction=given[name].numel())


def _accumulates(name: str) -> Rule:
    return lambda given, out: Work(reduction=given[name].numel()) if given.get("accumulate") else NOTHING


def affine(norm: Work, weight: Tensor | None, bias: Tensor | None = None) -> Work:
    """Per element of a norm with this gain and shift."""
    return norm + Work(cheap=(weight is not None) + (bias is not None))


def _norm(norm: Work) -> Rule:
    """Gain and shift are the arguments `weight` and `bias`."""
    return lambda given, out: affine(norm, given.get("weight"), given.get("bias")) * given["input"].numel()


def _norm_backward(norm: Work) -> Rule:
    """The gain is an argument; of the shift only its gradient tells, the third that may be asked for."""

    def rule(given: Given, out: tuple[Tensor | None, ...]) -> Work:
        shift = out[2] if len(out) > 2 else None
        return affine(norm, given.get("weight"), shift) * 2 * given["input"].numel()

    return rule


def _batch_norm(given: Given, out: Any) -> Work:
    training = given.get("training", given.get("train", True))
    return _norm(LAYER_NORM if training else CENTRED)(given, out)


def _first(values: Any) -> Tensor:
    return next(tensors(values))


_BY_FAMILY: Mapping[str, Rule] = {
    "view": _none,
    "allocation": _none,
    "copy": _none,
    "indexing": _none,
    "check": _none,
    "search": per_input,
    "pointwise": per_output,
    "reduction": per_input,
    "softmax": _each(SOFTMAX),
    "norm": _norm(LAYER_NORM),
    "random": _drawn,
    "loss": per_input,
    "pooling": per_input,
    "resampling": per_output,
}
"""Losses and pools: one per element that goes in. Sorting: one per element, however many comparisons that takes."""

_TRANSCENDENTAL = """
    acos acosh angle asin asinh atan atan2 atanh celu cos cosh digamma elu elu_backward erf erfc erfinv exp exp2 expm1
    float_power gelu gelu_backward glu glu_backward hypot i0 igamma igammac lgamma log log10 log1p log2 logaddexp
    logaddexp2 logit log_sigmoid_backward log_sigmoid_forward mish mish_backward mvlgamma polar polygamma rsqrt selu
    sigmoid silu silu_backward sin sinc sinh softplus softplus_backward sqrt tan tanh xlogy"""

WORK: Mapping[str, Rule] = {
    **dict.fromkeys(_TRANSCENDENTAL.split(), _transcendental),
    "pow": _power,
    "_softmax_backward_data": _each(SOFTMAX * 2),
    "_log_softmax_backward_data": _each(SOFTMAX * 2),
    "_masked_softmax_backward": _each(SOFTMAX * 2),
    "native_layer_norm_backward": _norm_backward(LAYER_NORM),
    "native_group_norm_backward": _norm_backward(LAYER_NORM),
    "native_batch_norm_backward": _norm_backward(LAYER_NORM),
    "batch_norm_backward": _norm_backward(LAYER_NORM),
    "_fused_rms_norm": _norm(RMS_NORM),
    "_fused_rms_norm_backward": _norm_backward(RMS_NORM),
    "_weight_norm_interface": _each(WEIGHT_NORM),
    "_weight_norm_interface_backward": _each(WEIGHT_NORM * 2),
    "_batch_norm_no_update": _norm(CENTRED),
    "_native_batch_norm_legit_no_training": _norm(CENTRED),
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"), _batch_norm
    ),
    **dict.fromkeys(("index_add", "index_reduce"), _adds("source")),
    **dict.fromkeys(("scatter_add", "scatter_reduce"), _adds("src")),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _accumulates("values")),
    "put": _accumulates("source"),
    "embedding_dense_backward": _adds("grad_output"),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _adds("target")),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _none),
}
"""By the name of an operator of torch, without the `_` of those in place; families speak for all others."""


def rule_of(name: str, family: str) -> Rule:
    """The rule of an operator of torch, by its name without namespace and its family."""
    bare = name.removesuffix("_")
    if bare in WORK:
        return WORK[bare]
    if bare.startswith("special_"):
        return _transcendental
    if family in ("loss", "pooling") and bare.endswith("_backward"):
        return per_output
    return _BY_FAMILY[family]


def of_attention(out: Tensor, query: Tensor, key: Tensor, pairs: int | None) -> Work:
    """5 for each (query, key) pair and head, as a softmax; pairs: visible ones of one head, None: counted as all."""
    seen = query.shape[-2] * key.shape[-2] if pairs is None else pairs
    return SOFTMAX * (prod(out.shape[:-2]) * seen)


def _kernel(given: Given, out: tuple[Tensor, ...]) -> Work:
    query, key = given["query"], given["key"]
    T, S = query.shape[-2], key.shape[-2]
    return of_attention(given.get("out", out[0]), query, key, top_left_pairs(T, S) if given.get("is_causal") else T * S)


def _kernel_backward(given: Given, out: tuple[Tensor, ...]) -> Work:
    return _kernel(given, out) * 2


def _bias(given: Given, out: Tensor) -> Work:
    return NOTHING if given.get("bias") is None else per_output(given, out)


def _bias_gradient(given: Given, out: Any) -> Work:
    """The gradient of a bias is the sum of all that flows back."""
    return Work(reduction=given["grad_output"].numel()) if given["output_mask"][2] else NOTHING


_BESIDE_PRODUCTS: Mapping[str, Rule] = {
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation"), per_output),
    **dict.fromkeys(("convolution", "_convolution", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm"), _bias),
    "convolution_backward": _bias_gradient,
    **{f"_scaled_dot_product_{kernel}": _kernel for kernel in ATTENTION_KERNELS},
    **{f"_scaled_dot_product_{kernel}_backward": _kernel_backward for kernel in ATTENTION_KERNELS},
}
"""What a matrix product adds: a bias, one per output element; an attention in one kernel: its softmax."""


def beside_products(name: str) -> Rule:
    """The rule of an operator that is a matrix product, by its name without namespace."""
    return _BESIDE_PRODUCTS.get(name, _none)
