"""What one change does to a published model; where it cannot be made, the row says why."""

from __future__ import annotations

from pathlib import Path

import pytest

import explorer

FOLDER = Path(__file__).parents[2] / "blueprints" / "published"
AXES = ["attention=mha,gqa:kv_heads=8,mla", "residual=add,mhc"]

MODELS = [  # rows that are left of six, and what is said of the others
    ("llama-3-8b", 6, set()),
    ("deepseek-v4-flash", 6, set()),
    ("kimi-k3-text", 6, set()),
    ("falcon-40b", 6, set()),
    ("gpt2-xl", 4, {"heads 25 must divide by kv_heads 8"}),
    ("t5-base", 4, {"heads 12 must divide by kv_heads 8"}),
    ("transformer-big", 3, {"residual 'mhc' is defined for placement pre, sandwich, res_post, none, not post"}),
]


@pytest.mark.parametrize(("name", "left", "reasons"), MODELS)
def test_axes_over_a_published_model(name: str, left: int, reasons: set[str]) -> None:
    document = explorer.run(explorer.load(FOLDER / f"{name}.yaml", axes=AXES), audit=1).to_dict()
    assert document["counts"] == {"product": 6, "rows": left, "skipped": 6 - left, "merged": 0}
    skipped = [row["skipped"] for row in document["combinations"] if row["skipped"]]
    assert all(any(reason in said for reason in reasons) for said in skipped)
    for row in document["combinations"]:
        assert all(cost["matmul_flops"] and not cost["incomplete"] for cost in row["costs"])
