"""Every axis shows its price where other counters print 0: element-wise operations, moved bytes, kernels."""

from __future__ import annotations

from typing import Any

import pytest

import explorer

DIM, WIDE, TOKENS, LAYERS, SIZE = 64, 96, 16, 4, 2
STREAM, HIDDEN = TOKENS * DIM, TOKENS * WIDE
BLOCK: dict[str, Any] = {
    "dim": DIM,
    "heads": 4,
    "layers": LAYERS,
    "attention": "none",
    "feedforward": {"dense": {"hidden": WIDE}},
    "norm": "layernorm",
    "activation": "relu",
}


def costs(axis: str, *options: Any, phase: str = "prefill") -> list[dict[str, Any]]:
    """The last layer under each option: one norm, one feed-forward, one addition."""
    workload = {"phase": phase, "tokens": TOKENS, "dtype": "bfloat16"}
    document = explorer.run({**BLOCK, "workloads": [workload], "explore": {axis: list(options)}}, audit=0).to_dict()
    return [next(cost for cost in row["costs"] if cost["scope"] == "block") for row in document["combinations"]]


def differences(one: dict[str, Any], other: dict[str, Any]) -> tuple[int, int, int, int]:
    keys = ("elementwise_ops", "moved_bytes", "fused_bytes", "kernels")
    return tuple(other[key] - one[key] for key in keys)  # type: ignore[return-value]


def test_norms() -> None:
    """RMSNorm saves 3 operations an element; with its gain in a second kernel it moves more than LayerNorm."""
    layer, one_kernel, two = costs("norm", "layernorm", {"rmsnorm": {"cast": "gemma"}}, "rmsnorm")
    shift = DIM * SIZE
    assert differences(layer, one_kernel) == (-3 * STREAM, -shift, -shift, 0)
    assert differences(layer, two) == (-3 * STREAM, 2 * STREAM * SIZE - shift, -shift, 1)
    assert len({cost["matmul_flops"] for cost in (layer, one_kernel, two)}) == 1


def test_norms_in_training() -> None:
    layer, one_kernel, two = costs("norm", "layernorm", {"rmsnorm": {"cast": "gemma"}}, "rmsnorm", phase="train")
    assert layer["elementwise_ops"] - one_kernel["elementwise_ops"] == 3 * 3 * STREAM
    assert two["moved_bytes"] > layer["moved_bytes"] > one_kernel["moved_bytes"]
    assert two["kernels"] == layer["kernels"] + 4


def test_activations() -> None:
    """ReLU and GELU are one operation each, of two kinds. SwiGLU is two kernels on two halves, and a third matrix."""
    relu, gelu, swiglu = costs("activation", "relu", "gelu", "swiglu")
    assert differences(relu, gelu) == (0, 0, 0, 0)
    kinds = [
        (c["breakdown"]["feedforward"]["cheap_ops"], c["breakdown"]["feedforward"]["transcendental_ops"])
        for c in (relu, gelu, swiglu)
    ]
    assert kinds == [(HIDDEN, 0), (0, HIDDEN), (HIDDEN, HIDDEN)]
    wider = (DIM * WIDE + HIDDEN) * SIZE  # the third matrix, and what it makes
    assert differences(relu, swiglu) == (HIDDEN, wider + 3 * HIDDEN * SIZE, wider + HIDDEN * SIZE, 1)
    assert swiglu["matmul_flops"] - relu["matmul_flops"] == 2 * TOKENS * DIM * WIDE


@pytest.mark.parametrize("phase", ["prefill", "train"])
def test_residuals(phase: str) -> None:
    """The addition is one operation; streams and sources are moved as often as there are."""
    add, mhc, attnres = costs("residual", "add", "mhc", "attnres", phase=phase)
    of_add, of_mhc, of_attnres = (cost["breakdown"]["residual"] for cost in (add, mhc, attnres))
    times = 2 if phase == "train" else 1  # two gradients meet at the stream
    assert (of_add["elementwise_ops"], of_add["kernels"]) == (times * STREAM, times)
    assert of_add["moved_bytes"] == times * 3 * STREAM * SIZE
    for name, least in (("mhc", 4 * 2), ("attnres", LAYERS)):
        wide = {"mhc": of_mhc, "attnres": of_attnres}[name]
        assert wide["elementwise_ops"] > of_add["elementwise_ops"]
        assert wide["moved_bytes"] > least * of_add["moved_bytes"]
        assert wide["kernels"] > 10 * of_add["kernels"]
        assert wide["fused_bytes"] < wide["moved_bytes"]
    products = 3 if phase == "train" else 1
    assert of_mhc["matmul_flops"] == products * 232 * STREAM
    assert of_attnres["matmul_flops"] == products * 4 * LAYERS * STREAM
