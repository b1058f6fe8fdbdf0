"""A path reaches the keys of a structured value, below the name of its form too."""

from __future__ import annotations

from typing import Any

import pytest

import explorer

BASE: dict[str, Any] = {"dim": 16, "heads": 4, "layers": 2}
YARN = {"rope": {"scaling": {"yarn": {"factor": 4, "original": 64}}}}


def scaling(fields: dict[str, Any], sets: tuple[str, ...] = ()) -> Any:
    return explorer.load({**BASE, **fields}, sets=sets).resolved()["position"]["rope"]["scaling"]


def test_a_path_sets_one_key_of_the_form_that_stands_there() -> None:
    came = scaling({"position": YARN}, sets=("position.scaling.factor=8", "position.scaling.truncate=false"))
    assert came == {"yarn": {"factor": 8, "original": 64, "truncate": False}}


def test_a_key_of_another_form_reaches_nothing() -> None:
    with pytest.raises(explorer.BlueprintError, match=r"position\.scaling\.low: reaches nothing"):
        scaling({"position": YARN}, sets=("position.scaling.low=2",))


def test_a_wrong_number_is_named() -> None:
    with pytest.raises(explorer.BlueprintError, match=r"position\.scaling\.factor: .*at least 1, not 0"):
        scaling({"position": YARN}, sets=("position.scaling.factor=0",))


def test_an_axis_over_such_a_path_rests_where_the_form_has_no_such_key() -> None:
    fields = {
        **BASE,
        "position": YARN,
        "explore": {
            "position.scaling": [{"yarn": {"factor": 4, "original": 64}}, {"linear": {"factor": 2}}],
            "position.scaling.beta_fast": [32, 16],
        },
        "skip": [{"position.scaling.beta_fast": 16}],
        "workloads": [{"tokens": 8}],
    }
    counts = explorer.run(explorer.load(fields)).to_dict()["counts"]
    assert counts == {"product": 4, "rows": 2, "skipped": 1, "merged": 1}
