"""Smoothed cross-entropy against torch's and against the distribution written out in float64."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from explorer.behaviour.label_smoothing import smoothed_cross_entropy
from explorer.errors import UsageError

CLASSES = 7
Spread = Literal["all", "others"]


def drawn(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 5, CLASSES, generator=generator, dtype=torch.float64)
    return logits, torch.randint(CLASSES, (2, 5), generator=generator)


def written_out(logits: Tensor, targets: Tensor, smoothing: float, spread: Spread) -> Tensor:
    """-sum q log p with every entry of q put in place one by one."""
    total = torch.zeros((), dtype=torch.float64)
    for row, label in zip(logits.flatten(0, 1), targets.flatten(), strict=True):
        q = torch.full((CLASSES,), smoothing / (CLASSES if spread == "all" else CLASSES - 1), dtype=torch.float64)
        q[label] = 1 - smoothing + (smoothing / CLASSES if spread == "all" else 0)
        torch.testing.assert_close(q.sum(), torch.ones((), dtype=torch.float64))
        total -= (q * (row - torch.logsumexp(row, 0))).sum()
    return total / targets.numel()


@pytest.mark.parametrize("spread", ["all", "others"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3, 0.85])
def test_equals_the_distribution_written_out(smoothing: float, spread: Spread) -> None:
    logits, targets = drawn()
    came = smoothed_cross_entropy(logits, targets, smoothing=smoothing, spread=spread)
    torch.testing.assert_close(came, written_out(logits, targets, smoothing, spread))


def test_all_is_torchs_own() -> None:
    logits, targets = drawn(1)
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)
    torch.testing.assert_close(smoothed_cross_entropy(logits, targets), wanted)


@pytest.mark.parametrize(("spread", "gap"), [("all", 0.9 + 0.1 / 7), ("others", 0.9)])
def test_the_best_prediction_is_the_smoothed_label(spread: Spread, gap: float) -> None:
    """At the minimum the gradient vanishes: softmax(logits) is q."""
    rest = (1 - gap) / (CLASSES - 1)
    logits = torch.full((1, CLASSES), rest, dtype=torch.float64).log()
    logits[0, 2] = torch.tensor(gap, dtype=torch.float64).log()
    logits.requires_grad_()
    smoothed_cross_entropy(logits, torch.tensor([2]), spread=spread).backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), atol=1e-12, rtol=0)


def test_left_out_targets_count_for_nothing() -> None:
    logits, targets = drawn(2)
    padded = targets.clone()
    padded[0, 3:] = -100
    kept = padded != -100
    wanted = smoothed_cross_entropy(logits[kept], targets[kept], spread="others")
    torch.testing.assert_close(smoothed_cross_entropy(logits, padded, spread="others"), wanted)


WRONG: list[tuple[float, Spread, str]] = [
    (1.0, "all", "below 1 with 7 classes, not 1"),
    (-0.1, "all", "from 0 .* not -0.1"),
    (0.9, "others", "below 0.857143"),
]


@pytest.mark.parametrize(("smoothing", "spread", "message"), WRONG)
def test_wrong_values_are_named(smoothing: float, spread: Spread, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        smoothed_cross_entropy(*drawn(), smoothing=smoothing, spread=spread)
