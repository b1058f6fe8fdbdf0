"""Every blueprint in the repository loads, counts, and runs at toy size; published ones have published numbers."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import explorer
from explorer.assembly.build import build_model

FOLDER = Path(__file__).parents[1] / "blueprints"
FILES = sorted(FOLDER.rglob("*.yaml"))
NAMES = [f"{path.parent.name}/{path.stem}" for path in FILES]


@dataclass(frozen=True)
class Published:
    """params: of the model and, where all layers are alike, of a block. flops: matrix products of a prefill."""

    params: int
    block: int
    kv_bytes_per_token: int
    flops: int | None = None


PUBLISHED = {
    "gpt2-small": Published(124_439_808, 7_087_872, 36_864, 291_648_307_200),
    "bert-base-uncased": Published(109_482_240, 7_087_872, 0, 96_637_943_808),
    "llama-7b": Published(6_738_415_616, 202_383_360, 524_288, 29_261_612_187_648),
    "llama-3-8b": Published(8_030_261_248, 218_112_000, 131_072, 32_938_104_193_024),
    "mistral-7b-v0.1": Published(7_241_732_096, 218_112_000, 131_072),
    "palm-8b": Published(8_632_012_800, 236_982_272, 32_768),
    "gpt-j-6b": Published(6_050_882_784, 201_355_264, 458_752, 25_859_461_218_304),
    "qwen3-8b": Published(8_190_735_360, 192_946_432, 147_456, 33_472_827_621_376),
    "gemma-2-9b": Published(9_241_705_984, 198_195_200, 344_064, 40_737_764_802_560),
    "olmo-2-7b": Published(7_298_617_344, 202_391_552, 524_288),
}


@cache
def counted(path: Path) -> dict[str, Any]:
    return explorer.run(explorer.load(path)).to_dict()


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_numbers(name: str) -> None:
    """Batch 1, 2,048 tokens or as many as the position table holds (1,024 and 512), bfloat16 cache."""
    (row,) = counted(FOLDER / "published" / f"{name}.yaml")["combinations"]
    (model,) = [cost for cost in row["costs"] if cost["scope"] == "model"]
    expected = PUBLISHED[name]
    assert row["params"]["model"] == row["params"]["active"] == expected.params
    assert row["params"]["block"] == expected.block
    assert model["kv_bytes_per_token"] == expected.kv_bytes_per_token
    assert expected.flops in (None, model["matmul_flops"])


def test_every_published_blueprint_has_its_numbers_here() -> None:
    assert {path.stem for path in FILES if path.parent.name == "published"} == set(PUBLISHED)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_counts(path: Path) -> None:
    """Every row of every blueprint is counted, with nothing left out."""
    result = counted(path)
    counts = result["counts"]
    assert counts["rows"] + counts["skipped"] + counts["merged"] == counts["product"]
    assert counts["rows"] > 0
    for row in result["combinations"]:
        assert row["skipped"] is None
        for cost in row["costs"]:
            assert cost["incomplete"] == []
            assert 0 < cost["matmul_flops_exact"] <= cost["matmul_flops"]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_model_is_its_blocks_and_what_is_around_them(path: Path) -> None:
    """Layers times block, and what stands outside the layers of a model that is built apart, make the total."""
    blueprint = explorer.load(path)
    plans = {row.id: row.plan for row in blueprint.combinations().rows}
    for row in counted(path)["combinations"]:
        params = row["params"]
        if params["model"] is None:
            continue
        model = build_model(plans[row["id"]], device="meta")
        around = sum(p.numel() for name, p in model.named_parameters() if ".layers." not in f".{name}")
        assert params["model"] == around + sum(block["layers"] * block["params"] for block in params["blocks"])


TOY = ("dim=32", "heads=4", "vocab=50", "layers=2", "feedforward.hidden=48")


def toy(path: Path) -> explorer.blueprint.blueprint.Blueprint:
    """The blueprint at a size that runs in milliseconds, its widths and depth cut."""
    sets = [*TOY]
    text = path.read_text(encoding="utf-8")
    sets += ["attention.kv_heads=2"] if "gqa" in text and "explore" not in text else []
    sets += ["head_dim=8"] if "head_dim" in text else []
    sets += ["position.max_tokens=16"] if "learned" in text else []
    sets += ["position.dims=4"] if "dims:" in text else []
    sets += ["layers=[local,global]"] if "blocks:" in text else []
    sets = [s for s in sets if s != "feedforward.hidden=48" or "feedforward: none" not in text]
    return explorer.load(path, sets=sets)


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "published"], ids=lambda p: p.stem)
def test_runs(path: Path) -> None:
    """The model runs on a CPU with real values, and its gradients are finite."""
    blueprint = toy(path)
    model = explorer.build(blueprint, device="cpu")
    ids = torch.randint(50, (2, 5), generator=torch.Generator().manual_seed(0))
    out = model(ids)
    out.square().mean().backward()
    assert out.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_resolved_form_loads_and_means_the_same(path: Path) -> None:
    blueprint = explorer.load(path)
    again = explorer.load(blueprint.resolved())
    assert again.resolved() == blueprint.resolved()


def test_result_as_a_frame_has_one_row_per_cost() -> None:
    result = explorer.run(explorer.load(FOLDER / "seeds" / "classic_vs_modern_block.yaml"))
    frame = result.frame()
    costs = [cost for row in result.to_dict()["combinations"] for cost in row["costs"]]
    assert frame["matmul_flops"].to_list() == [cost["matmul_flops"] for cost in costs]
    assert frame["params"].to_list() == [row["params"]["block"] for row in result.to_dict()["combinations"]]


def test_published_csv_when_it_is_at_hand() -> None:
    """The table of published totals that the numbers above were taken from, where the checkout carries it."""
    table = FOLDER.parents[1] / "shared" / "reference" / "published.csv"
    if not table.is_file():
        pytest.skip("the table of published models is not beside this checkout")
    with table.open(encoding="utf-8") as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    for name, expected in PUBLISHED.items():
        assert int(rows[name]["params_total"]) == expected.params
        assert int(rows[name]["params_per_block"]) == expected.block
