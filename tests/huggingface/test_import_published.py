"""Released configs, as their authors wrote them, give the published totals."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import explorer
from explorer.huggingface.commented_yaml import commented_yaml
from explorer.huggingface.import_config import read_import
from explorer.huggingface.json_source import read_config

HERE = Path(__file__).parent
CONFIGS = sorted((HERE / "published").glob("*.json"))
SAME_SIZE = {"llama-3.1-8b": "llama-3-8b"}  # of another name in the table


@pytest.fixture(scope="module")
def totals():
    with (HERE.parent / "blueprints" / "totals.csv").open(encoding="utf-8") as table:
        return {row["model"].split("/")[0]: int(row["params"]) for row in csv.DictReader(table)}


def read(name):
    return read_import(read_config(str(HERE / "published" / f"{name}.json")))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_totals_are_the_published_ones(path, totals):
    ours = explorer.build(explorer.load(read(path.stem).fields), device="meta")
    assert sum(parameter.numel() for parameter in ours.parameters()) == totals[SAME_SIZE.get(path.stem, path.stem)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_text_loads_as_the_same_fields(path, tmp_path):
    imported = read(path.stem)
    text = commented_yaml(imported, "config.json")
    assert max(map(len, text.splitlines())) <= 120
    written = tmp_path / "blueprint.yaml"
    written.write_text(text, encoding="utf-8")
    assert explorer.load(written).digest == explorer.load({"name": "blueprint", **imported.fields}).digest


def test_a_text_is_as_a_person_writes_it():
    assert commented_yaml(read("gemma-3-27b-text"), "gemma-3-27b-pt/config.json") == (
        """\
# gemma-3-27b-pt/config.json, model_type gemma3
# the text model alone: the vision tower and the map from it are left out
dim: 5376
heads: 32
head_dim: 128
norm: {rmsnorm: {offset: 1, cast: gemma}}
placement: sandwich
position: {rope: {base: 1000000, scaling: {linear: {factor: 8}}}}
# scale: 168^-1/2, where head_dim is 128
attention: {gqa: {kv_heads: 16, scale: 0.07715167498104596, qk_norm: {rmsnorm: {offset: 1, cast: gemma}}}}
feedforward: {dense: {hidden: 21504}}
activation: geglu_tanh
blocks:
  local: {window: 1024, position: rope}
  global: {}
layers: {pattern: [{local: 5}, global], count: 62}
vocab: 262208
embedding: {scale: sqrt_dim}
tie_embeddings: true
"""
    )


REMARKS = [
    ("deepseek-v3", "layers that predict further tokens are left out"),
    ("deepseek-v3", "quantized weights"),
    ("deepseek-v3", "scale: 192^-1/2 times YaRN's 1.369^2"),
    ("deepseek-v4-flash", "a table of token ids chooses their experts"),
    ("deepseek-v4-flash", "hc_eps 1e-06 is left out"),
    ("gemma-3-4b-text", "the vision tower"),
    ("t5-v1.1-base", "transformers 5 ties the two all the same"),
    ("t5-base", "T5 also drops after the final norms"),
    ("bert-base-uncased", "BertModel with its pooler"),
]


@pytest.mark.parametrize(("name", "remark"), REMARKS)
def test_what_is_not_obvious_is_said(name, remark):
    assert remark in commented_yaml(read(name), "config.json")
