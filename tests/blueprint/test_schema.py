"""The JSON Schema of blueprints: takes what loads, refuses what does not."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from explorer.blueprint.load import load
from explorer.blueprint.resolved import resolved
from explorer.blueprint.schema import json_schema
from explorer.blueprint.tree import plain
from explorer.blueprint.yaml_source import parse, read_blueprint
from explorer.registry.loading import load_registry

BLUEPRINTS = sorted((Path(__file__).parents[2] / "blueprints").glob("*/*.yaml"))


@pytest.fixture(scope="session")
def installed():
    return jsonschema.Draft202012Validator(json_schema(load_registry()))


@pytest.fixture(scope="session")
def toys(registry):
    schema = json_schema(registry)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda path: path.stem)
def test_every_blueprint_of_the_repository(installed, path):
    installed.validate(plain(parse(read_blueprint(path).text, str(path))))
    blueprint = load(path)
    installed.validate(blueprint.resolved())
    assert load(blueprint.resolved()).resolved() == blueprint.resolved()
    for row in blueprint.combinations().rows:
        installed.validate(resolved(row.state))
        assert resolved(load(resolved(row.state)).state) == resolved(row.state)


VALID = [
    "attention: gqa\nattention.kv_heads: 2",
    "attention: {gqa: {qk_norm: rmsnorm}}\nexplore: {attention.kv_heads: [1, 2]}",
    "attention: {toys:gqa: {kv_heads: 2, bias: out, qk_norm: {rmsnorm: {eps: 1}}, scale: null}}",
    "attention: {mha: null}\nnorm: {none: {}}\nposition: none\nfeedforward: null\nplacement: null",
    "feedforward: {dense: {hidden: {ratio: 8/3, multiple_of: 256}, bias: true}}\nfeedforward.hidden.ratio: 2.5",
    "blocks: {a: {window: 2, norm.eps: 1}, b: null}\nlayers: [a, {b: 2}, {pattern: [{a: 1}, b], count: 3}]",
    "encoder: {layers: 2, blocks: {a: {}}}\ndecoder: {cross_attention: null, final_norm: auto}\nblocks: {a: {}}",
    "vocab: 8\nembedding: {scale: sqrt_dim, norm: true, types: 2}\nhead: {lm: {scale: rsqrt_dim}}\n"
    "tie_embeddings: true",
    "embedding: {scale: 2.5, norm: {rmsnorm: {eps: 1}}}\nhead: {pooler: {activation: tanh}}\ndropout: none",
    "init: {normal: {std: 0.02, output: depth}}\nseed: 3\nrequires: []\nname: a\nbase: null",
    "workloads: [{phase: decode, batch: [1, 8], context: 4, dtype: float16, kv_dtype: null}]",
    "workloads: {tokens: 4}",
    "explore: {norm: [as_written, none], era: {a: {norm.eps: 1}, b: null}}\nskip: [{era: a}]\nbaseline: {era: b}\n"
    "match: null",
]


@pytest.mark.parametrize("text", VALID)
def test_takes_the_language(toys, text):
    toys.validate(plain(parse(f"dim: 64\nheads: 4\n{text}", None)))


INVALID = [
    "attentoin: mha",
    "attentoin.kv_heads: 2",
    "attention: mah",
    "attention: {gqa: {kv_head: 2}}",
    "attention: {gqa: {kv_heads: 0}}",
    "attention: {gqa: {kv_heads: 2.5}}",
    "attention: {gqa: {kv_heads: '2'}}",
    "attention: {gqa: {qk_norm: rmsnrom}}",
    "attention: {gqa: {kv_heads: 2}, mha: {}}",
    "attention: {}",
    "attention: 3",
    "norm: {rmsnorm: {eps: 0}}",
    "norm: false",
    "placement: before",
    "heads: 0",
    "heads: null",
    "heads: true",
    "dim: 99999999999",
    "window: 0",
    "bias: 1",
    "layers: 0",
    "layers: [2]",
    "layers: [{a: 1, b: 2}]",
    "layers: {pattern: [a]}",
    "blocks: {a: {residual: add}}",
    "blocks: {a: {hedas: 2}}",
    "encoder: {dim: 3}",
    "dropout: {attn: 0.1}",
    "dropout: {attention: 1}",
    "head: {lm: {skale: 1}}",
    "final_norm: false",
    "embedding: {norm: false}",
    "feedforward: {dense: {hidden: {multiple_of: 2}}}",
    "feedforward: {dense: {hidden: {ratio: 2, multiple: 2}}}",
    "workloads: [{tokns: 3}]",
    "workloads: [{dtype: bf16}]",
    "workloads: []",
    "explore: {norm: rmsnorm}",
    "skip: {a: b}",
    "match: {params: baseline}",
    "seed: -1",
]


@pytest.mark.parametrize("text", INVALID)
def test_refuses_what_does_not_load(toys, told, text):
    document = plain(parse(f"dim: 64\n{text}" if text.startswith("heads") else f"heads: 4\n{text}", None))
    assert not toys.is_valid(document)
    assert told(f"dim: 64\nheads: 4\n{text}" if text[:3] not in ("dim", "hea") or text.startswith("head:") else text)


def test_a_component_whose_signature_cannot_be_read_is_left_out(registry, plugin):
    from explorer.registry.registry import Registry

    broken = Registry((*registry.packages, plugin("bad", {"norm": {"untyped": lambda dim, *, eps: None}})))
    names = json_schema(broken)["$defs"]["norm"]["anyOf"][0]["enum"]
    assert "rmsnorm" in names
    assert "untyped" not in names
