"""Published models have their published numbers, to the last digit."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import explorer
from tests.blueprints.toy import shrunk

FOLDER = Path(__file__).parents[2] / "blueprints" / "published"
TABLE = Path(__file__).parent / "totals.csv"


@dataclass(frozen=True)
class Published:
    """blocks: {parameters of a layer: how many layers, None where the table does not say}. kv: bytes, bfloat16, with
    all windows full (of DeepSeek-V4: the compressed keys alone) or still open.
    """

    params: int
    active: int
    blocks: tuple[tuple[int, int | None], ...]
    kv: int | None
    windows_full: bool


def read(row: dict[str, str]) -> Published:
    found = re.findall(r"(\d+)(?:x(\d+))?(?=\||$)", row["blocks"])
    blocks = tuple((int(size), int(times) if times else None) for size, times in found)
    kv = row["kv_bytes_per_token"]
    return Published(int(row["params"]), int(row["active"]), blocks, int(kv) if kv else None, row["windows"] == "full")


with TABLE.open(encoding="utf-8") as file:
    PUBLISHED = {row["model"]: read(row) for row in csv.DictReader(file)}


@cache
def counted(name: str) -> dict[str, Any]:
    (row,) = explorer.run(explorer.load(FOLDER / f"{name}.yaml")).to_dict()["combinations"]
    return row


def whole(name: str) -> dict[str, Any]:
    (model,) = [cost for cost in counted(name)["costs"] if cost["scope"] == "model"]
    return model


def test_every_model_of_the_table_has_a_blueprint() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters(name: str) -> None:
    params, expected = counted(name)["params"], PUBLISHED[name]
    assert params["model"] == expected.params
    assert params["active"] == expected.active
    layers: dict[int, int] = {}
    for block in params["blocks"]:
        layers[block["params"]] = layers.get(block["params"], 0) + block["layers"]
    for size, times in expected.blocks:
        assert size in layers
        assert times in (None, layers[size])


@pytest.mark.parametrize("name", [name for name in PUBLISHED if PUBLISHED[name].kv is not None])
def test_cache(name: str) -> None:
    key = "kv_bytes_per_token_full_windows" if PUBLISHED[name].windows_full else "kv_bytes_per_token"
    assert whole(name)[key] == PUBLISHED[name].kv


@pytest.mark.parametrize("name", PUBLISHED)
def test_nothing_is_left_out(name: str) -> None:
    for cost in counted(name)["costs"]:
        assert cost["incomplete"] == []
        assert cost["notes"] == []
        assert 0 < cost["matmul_flops_exact"] <= cost["matmul_flops"]


DENSE = {  # tokens, and what the ledger must say: T (L 2 (4 d h k -> 2 d h k + 2 d g k, + FFN) + 2 d V) + 4 L T^2 h k
    "gpt2-small": 1024, "gpt2-medium": 1024, "gpt2-xl": 1024, "gpt3-175b": 2048, "palm-8b": 2048, "palm-540b": 2048,
    "llama-7b": 2048, "llama-13b": 2048, "llama-33b": 2048, "llama-65b": 2048, "llama-2-70b": 2048, "llama-3-8b": 2048,
    "llama-3-70b": 2048, "mistral-7b-v0.1": 2048, "qwen2.5-7b": 2048, "qwen3-8b": 2048, "gemma-2-9b": 2048,
    "gemma-3-1b": 2048, "gemma-3-4b-text": 2048, "gemma-3-27b-text": 2048, "olmo-2-7b": 2048, "bloom-176b": 2048,
    "gpt-j-6b": 2048, "falcon-7b": 2048, "falcon-40b": 2048,
}  # fmt: skip


@pytest.mark.parametrize(("name", "T"), DENSE.items())
def test_products_of_dense_decoders_are_the_closed_form(name: str, T: int) -> None:
    fields = explorer.load(FOLDER / f"{name}.yaml").resolved()
    d, h, V = fields["dim"], fields["heads"], fields["vocab"]
    k = fields["head_dim"] or d // h
    L = counted(name)["params"]["blocks"]
    layers = sum(block["layers"] for block in L)
    ((_, attention),) = fields["attention"].items()
    g = attention.get("kv_heads", h)
    ((activation, _),) = _named(fields["activation"]).items()
    f = fields["feedforward"]["dense"]["hidden"]
    ffn = (3 if activation.endswith("glu") or activation == "geglu_tanh" else 2) * d * f
    wanted = T * (layers * 2 * (2 * d * h * k + 2 * d * g * k + ffn) + 2 * d * V) + layers * 4 * T * T * h * k
    model = whole(name)
    assert model["workload"]["tokens"] == T
    assert model["matmul_flops"] == wanted


def _named(component: Any) -> dict[str, Any]:
    return component if isinstance(component, dict) else {component: {}}


def test_deepseek_v4_pro_holds_a_million_tokens_in_10_gigabytes() -> None:
    blueprint = explorer.load(FOLDER / "deepseek-v4-pro.yaml", workloads=["phase=decode,context=1048576"])
    (row,) = explorer.run(blueprint).to_dict()["combinations"]
    (model,) = [cost for cost in row["costs"] if cost["scope"] == "model"]
    entries = 9_848 * 1_048_576
    assert entries / 2**30 == pytest.approx(9.62, abs=0.005)
    # Beside the compressed keys: windows of 128 raw ones, and what waits to be pooled.
    assert entries < model["kv_cache_bytes"] < entries * 1.002


@pytest.mark.parametrize("name", PUBLISHED)
def test_runs(name: str) -> None:
    """The components of the model at toy size, with real values on a CPU, forward and backward."""
    small = shrunk(explorer.load(FOLDER / f"{name}.yaml").resolved())
    model = explorer.build(explorer.load(small), device="cpu")
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0))
    out = model(ids, ids[:, :7]) if small.get("encoder") else model(ids)
    out.square().mean().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
