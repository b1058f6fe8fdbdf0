"""Blocks that hold a mixture of experts and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import explorer

DIM, HIDDEN, EXPERTS, TOP_K, VOCAB = 16, 24, 8, 3, 40
SIZES = {"experts": EXPERTS, "top_k": TOP_K, "hidden": HIDDEN}
_ALONE = {"heads": 4, "norm": "none", "placement": "none", "residual": "none", "position": "none", "attention": "none"}


def made(parameters: Mapping[str, Any], *, name: str = "moe", device: str = "cpu", **fields: Any) -> Any:
    """The block; fields on top are a blueprint's."""
    document = {"dim": DIM, "vocab": VOCAB, **_ALONE, "feedforward": {name: dict(parameters)}, **fields}
    return explorer.build(document, "block", device=device)


def mixture(block: Any) -> nn.Module:
    """What the block holds."""
    return next(block.block.parts()).branches[0]


def row(parameters: Mapping[str, Any], *, name: str = "moe", phase: str = "prefill", **fields: Any) -> dict[str, Any]:
    """What `explorer.run` says of it at dim 64, for 2 x 10 tokens."""
    workload = {"phase": phase, "batch": 2, "tokens": 10}
    document = {"dim": 64, **_ALONE, "feedforward": {name: dict(parameters)}, "workloads": [workload], **fields}
    (combination,) = explorer.run(document).to_dict()["combinations"]
    return combination


def x(tokens: int = 5, batch: int = 2) -> Tensor:
    return torch.randn(batch, tokens, DIM, generator=torch.Generator().manual_seed(1))


def ids(tokens: int = 5, batch: int = 2) -> Tensor:
    return torch.randint(VOCAB, (batch, tokens), generator=torch.Generator().manual_seed(2))
