"""What a norm, an activation and a residual cost for each element, as the ledger counts it: a table of the docs.

python -m tests.cost.prices
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.ledger.rows import Counts
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.observing import observe
from explorer.cost.parts.subject import Subjects
from explorer.registry.loading import load_registry

WRITTEN_OUT = str(Path(__file__).parents[1] / "fixtures" / "written_out.py")
NUMBERS = {
    "elementwise_ops": "ops",
    "moved_bytes": "moved",
    "fused_bytes": "fused",
    "kernels": "kernels",
    "matmul_flops": "matmul",
}
Count = Callable[[str, int, int], Counts]
"""(phase, tokens, dim) -> what it costs, of one sequence in bfloat16."""


def of_kind(kind: str, **fields: Any) -> Count:
    """What a kind of part costs at one residual site: the last of 8, each around a feed-forward."""

    def count(phase: str, tokens: int, dim: int) -> Counts:
        site = {"layers": 8, "attention": "none", "position": "none", "feedforward": {"dense": {"hidden": 8}}}
        registry = load_registry((WRITTEN_OUT,))
        plan = explorer.load({"dim": dim, "heads": 1, **site, **fields}, registry=registry).plan()
        workload = Workload(phase, 1, tokens, dtype="bfloat16").settled(encoder=False)  # type: ignore[arg-type]
        return observe(Subjects(plan).model(), workload, Observations()).layers["block"].by_kind[kind]

    return count


def of_activation(name: str) -> Count:
    """What an activation costs for each element of its result, between the projections of a feed-forward."""

    def count(phase: str, tokens: int, dim: int) -> Counts:
        maker = explorer.load({"dim": 16, "heads": 1, "activation": name}).plan().stack.base.activation.maker()
        activation, inputs, train = maker(), maker.inputs, phase == "train"
        shape = 1, tokens, inputs * dim
        up = torch.empty(shape, dtype=torch.bfloat16, device="meta", requires_grad=train)
        with torch.set_grad_enabled(train), Trace() as trace:
            with trace.part("activation"):
                out = activation(*up.chunk(inputs, dim=-1))
            trace.leaves(out)
            if train:
                trace.leaves(torch.autograd.grad(out, [up], torch.empty_like(out)))
        return trace.counts()

    return count


NORMS: Mapping[str, Count] = {
    "LayerNorm: `layernorm`": of_kind("norm", norm="layernorm"),
    "RMSNorm, one kernel: `rmsnorm: {cast: gemma}`": of_kind("norm", norm={"rmsnorm": {"cast": "gemma"}}),
    "RMSNorm, gain apart: `rmsnorm` (`cast: llama`)": of_kind("norm", norm="rmsnorm"),
    "RMSNorm written out, as transformers has it": of_kind("norm", norm="rmsnorm_written_out"),
}
ACTIVATIONS: Mapping[str, Count] = {
    "ReLU: `relu`": of_activation("relu"),
    "GELU: `gelu`": of_activation("gelu"),
    "SwiGLU: `swiglu`": of_activation("swiglu"),
}
RESIDUALS: Mapping[str, Count] = {
    "`add`": of_kind("residual", residual="add"),
    "hyper-connections, 4 streams: `hyper_connections`": of_kind("residual", residual="hyper_connections"),
    "mHC, 4 streams: `mhc`": of_kind("residual", residual="mhc"),
    "AttnRes, 8 sources: `attnres`": of_kind("residual", residual="attnres"),
}
GROUPS = {"norm": NORMS, "activation": ACTIVATIONS, "residual, one site": RESIDUALS}

_SIZES = ((16, 64), (32, 64), (16, 128), (32, 128))
_FURTHER = 24, 192


def per_element(count: Count, phase: str) -> dict[str, tuple[int, int]]:
    """By number what it is for each element, and for each token: n = a T d + b T + c d + e, exactly.

    Kernels are a number by themselves: (e, 0). Raises: AssertionError where a number does not grow like that.
    """
    counts = {size: count(phase, *size) for size in (*_SIZES, _FURTHER)}
    found = {}
    for name in NUMBERS:
        values = {size: getattr(counts[size], name) for size in counts}
        a, b, c, e = _fit([values[size] for size in _SIZES])
        tokens, dim = _FURTHER
        assert values[_FURTHER] == a * tokens * dim + b * tokens + c * dim + e, name
        assert {a.denominator, b.denominator, e.denominator} == {1}, name
        found[name] = (int(e), 0) if name == "kernels" else (int(a), int(b))
    return found


def _fit(values: list[int]) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """a, b, c, e from the values at `_SIZES`."""
    (T, d), (T2, _), (_, d2), _ = _SIZES
    one, taller, wider, both = map(Fraction, values)
    a = (both - taller - wider + one) / ((T2 - T) * (d2 - d))
    b = (taller - one) / (T2 - T) - a * d
    c = (wider - one) / (d2 - d) - a * T
    return a, b, c, one - a * T * d - b * T - c * d


def table() -> str:
    """For each element: of forward alone, and of forward and backward in training."""
    titles = [f"{name}, {of}" for of in ("fwd", "train") for name in NUMBERS.values()]
    lines = []
    for group, rows in GROUPS.items():
        lines += [f"| {group} | {' | '.join(titles)} |", f"| --- |{' ---: |' * len(titles)}"]
        for name, count in rows.items():
            both = [per_element(count, phase) for phase in ("prefill", "train")]
            cells = [_text(*found[number]) for found in both for number in NUMBERS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _text(element: int, token: int) -> str:
    return f"{element:,}" if not token else f"{element:,} + {token:,}/d"


if __name__ == "__main__":
    print(table())
