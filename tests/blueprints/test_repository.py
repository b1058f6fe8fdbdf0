"""Every blueprint in the repository loads and counts, and its resolved form means the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer.assembly.build import build_model

FOLDER = Path(__file__).parents[2] / "blueprints"
FILES = sorted(FOLDER.rglob("*.yaml"))
NAMES = [f"{path.parent.name}/{path.stem}" for path in FILES]


@cache
def counted(path: Path) -> dict[str, Any]:
    return explorer.run(explorer.load(path)).to_dict()


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
