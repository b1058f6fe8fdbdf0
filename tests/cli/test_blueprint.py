"""`explorer blueprint check | show | schema`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import explorer as package
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.resolved import resolved
from explorer.blueprint.written import written
from explorer.cli.yaml_text import yaml_text

Explorer = Callable[..., Result]


def test_check_counts_rows(explorer: Explorer, study: Path) -> None:
    result = explorer("blueprint", "check", study)
    assert result.exit_code == 0
    assert result.stdout == f"{study}: ok; 4 combinations: 4 rows, 0 skipped, 0 merged\n"


def test_check_shows_every_problem(explorer: Explorer, toy: Path) -> None:
    result = explorer("blueprint", "check", toy, "--set", "nrom=1", "--set", "headz=1")
    assert result.exit_code == 2
    assert "nrom" in result.stderr
    assert "headz" in result.stderr


def test_show_loads_again_and_means_the_same(explorer: Explorer, toy: Path) -> None:
    shown = explorer("blueprint", "show", toy, "--set", "norm={rmsnorm: {eps: 1e-5}}").stdout
    again = explorer("blueprint", "show", "-", stdin=shown).stdout
    assert shown == again
    assert "rmsnorm: {eps: 1.0e-05" in shown


def _rows(blueprint: Blueprint) -> list[tuple[Any, ...]]:
    found = blueprint.combinations()
    return [(row.id, dict(row.choices), row.skipped, resolved(row.state)) for row in found.rows]


STUDIES = [  # fields that follow an axis must still follow it after a round trip
    "explore: {norm: [rmsnorm, {layernorm: {eps: 1e-6}}]}",
    "explore: {heads: [4, 8]}",
    "explore: {attention: [mha, {gqa: {kv_heads: 2}}], attention.kv_heads: [1, 2]}\nbaseline: {attention: mha}",
    "explore: {era: {old: {norm: layernorm, placement: post}, new: {}}, bias: [true, as_written]}\n"
    "skip: [{era: old, bias: true}]\nbaseline: {era: new}",
    "blocks: {wide: {heads: 8}, plain: {}}\nlayers: [wide, plain]\n"
    "explore: {heads: [2, 4], norm: [layernorm, rmsnorm]}",
    "encoder: {layers: 1}\ndecoder: {layers: 2}\nexplore: {attention: [mha, {gqa: {kv_heads: 1}}]}",
]


@pytest.mark.parametrize("study", STUDIES)
def test_a_written_study_has_the_same_rows(study: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"dim: 16\nheads: 4\n{study}\n", encoding="utf-8")
    first = package.load(path)
    path.write_text(yaml_text(written(first)), encoding="utf-8")
    second = package.load(path)
    assert _rows(second) == _rows(first)
    assert second.digest == first.digest


def test_schema_is_json_schema(explorer: Explorer) -> None:
    schema = json.loads(explorer("blueprint", "schema").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "rmsnorm" in json.dumps(schema)


def test_check_builds_the_rows(explorer: Explorer, toy: Path) -> None:
    """What a constructor refuses is found without counting."""
    refused = explorer("blueprint", "check", toy, "--set", "attention={gqa: {kv_heads: 3}}")
    assert refused.exit_code == 2
    assert "heads 4 must divide by kv_heads 3" in refused.stderr
    study = explorer("blueprint", "check", toy, "--axis", "attention=mha,gqa:kv_heads=3")
    assert "1 row, 1 skipped, 0 merged" in study.stdout


def test_an_encoding_that_is_not_utf8_is_mentioned(explorer: Explorer, toy: Path) -> None:
    toy.write_bytes("# 注意力\n".encode("gb18030") + toy.read_bytes())
    assert "was read as GB18030; save it as UTF-8" in explorer("blueprint", "check", toy).stderr


def test_the_tree_of_a_model(explorer: Explorer, toy: Path) -> None:
    result = explorer("blueprint", "show", toy, "--tree")
    assert result.exit_code == 0, result.stderr
    assert "0-1: Block × 2" in result.stdout
    assert "branch: GroupedQueryAttention" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    top = explorer("blueprint", "show", toy, "--tree", "--depth", 1).stdout
    assert "stack: Stack" in top
    assert "Block" not in top


def test_depth_is_of_the_tree(explorer: Explorer, toy: Path) -> None:
    for options, part in (
        (["--depth", 1], "--depth is how deep --tree goes"),
        (["--tree", "--depth", "-1"], "--depth"),
    ):
        result = explorer("blueprint", "show", toy, *options)
        assert result.exit_code == 2
        assert part in result.stderr
