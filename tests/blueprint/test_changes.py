"""Every mapping is changes: what a path reaches, and which change wins."""

from __future__ import annotations

from itertools import permutations

import pytest

SMALL = "dim: 64\nheads: 4\n"
LOCAL = "blocks: {local: {window: 8, norm: layernorm}, global: {}}\n"
T5 = "encoder: {layers: 2}\ndecoder: {layers: 3}\n"
RMS = {"rmsnorm": {"eps": 1e-6, "offset": 0.0}}
LAYER = {"layernorm": {"eps": 1e-5, "bias": True}}

# mappings from the first base to the file itself, then what stands where
WINS = [
    # a bare field replaces what stands there
    ("norm: {rmsnorm: {eps: 1e-3, offset: 1}}", "norm: rmsnorm", {"norm": RMS}),
    ("dropout: {attention: 0.1}", "dropout: {sublayer: 0.2}", {"dropout.attention": 0.0, "dropout.sublayer": 0.2}),
    # a longer path sets one parameter of it and skips component names
    ("norm: {rmsnorm: {eps: 1e-3, offset: 1}}", "norm.eps: 1e-4", {"norm.eps": 1e-4, "norm.offset": 1.0}),
    ("attention: {gqa: {kv_heads: 2}}", "attention.kv_heads: 4", {"attention.kv_heads": 4}),
    ("dropout: {attention: 0.1}", "dropout.sublayer: 0.2", {"dropout.attention": 0.1, "dropout.sublayer": 0.2}),
    ("attention: {mha: {qk_norm: rmsnorm}}", "attention.qk_norm.eps: 1", {"attention.qk_norm.eps": 1.0}),
    ("attention: mla", "attention.norm.offset: 1", {"attention.norm": {"rmsnorm": {"eps": 1e-6, "offset": 1.0}}}),
    (
        "feedforward: {dense: {hidden: {ratio: 4, multiple_of: 2}}}",
        "feedforward.hidden.ratio: 8/3",
        {"feedforward.hidden": {"ratio": "8/3", "multiple_of": 2}},
    ),
    (
        "",
        "head: lm\nhead.softcap: 30\nembedding.scale: sqrt_dim",
        {"head.softcap": 30.0, "embedding.scale": "sqrt_dim"},
    ),
    # without a prefix it reaches every stack and block that has the path
    (
        LOCAL + T5,
        "heads: 2",
        {p + "heads": 2 for p in ("encoder.", "decoder.", "encoder.blocks.local.", "blocks.global.")},
    ),
    (LOCAL, "norm.eps: 1", {"norm.eps": 1.0, "blocks.local.norm.eps": 1.0}),
    (LOCAL, "norm.bias: false", {"norm": RMS, "blocks.local.norm.bias": False}),
    (
        T5,
        "residual: none\nlayers: 4",
        {"encoder.residual": "none", "decoder.residual": "none", "encoder.layers": ("block",) * 4},
    ),
    # and replaces what earlier mappings wrote at or below it
    (LOCAL, "norm: rmsnorm", {"blocks.local.norm": RMS, "blocks.local.window": 8}),
    ("encoder: {norm.eps: 0.1}", "norm: rmsnorm", {"encoder.norm": RMS, "decoder.norm": RMS}),
    ("encoder: {norm.eps: 0.1}", "norm.eps: 0.2", {"encoder.norm.eps": 0.2}),
    (T5, "heads: 2\ndecoder.heads: 8", {"encoder.heads": 2, "decoder.heads": 8}),
    # a prefix narrows it
    (LOCAL, "blocks.local.window: 4", {"blocks.local.window": 4, "window": None, "blocks.local.norm": LAYER}),
    (T5, "encoder.norm: layernorm", {"encoder.norm": LAYER, "decoder.norm": RMS}),
    (
        LOCAL + T5,
        "decoder.blocks.local.window: 4",
        {"decoder.blocks.local.window": 4, "encoder.blocks.local.window": 8},
    ),
    # `blocks.NAME: changes` replaces that one block, `blocks:` all of them
    (LOCAL, "blocks.local: {}", {"blocks.local.window": None, "blocks.local.norm": RMS}),
    (LOCAL, "norm: layernorm\nblocks.local: {}", {"blocks.local.norm": LAYER}),
    (LOCAL, "blocks.new: {window: 2}", {"blocks.new.window": 2, "blocks.local.window": 8}),
    (LOCAL, "blocks.local: null", {"blocks.local.window": None}),
    (LOCAL + "bias: true", "blocks: {new: {}}", {"blocks.new.bias": True}),
    # within one mapping wide comes before narrow and short before long
    ("", "norm.eps: 1\nnorm: layernorm", {"norm.eps": 1.0}),
    ("", "blocks.a.window: 2\nblocks: {a: {}}\nwindow: 8", {"blocks.a.window": 2, "window": 8}),
    ("", "blocks: {a: {norm: layernorm}}\nnorm.eps: 1", {"blocks.a.norm": LAYER, "norm.eps": 1.0}),
    ("", "encoder: {bias: true}\nbias: false\nblocks: {a: {}}", {"encoder.blocks.a.bias": True, "decoder.bias": False}),
    ("", "encoder: {bias: true}\nblocks: {a: {bias: false}}", {"encoder.blocks.a.bias": False, "encoder.bias": True}),
    ("", "encoder: {blocks: {a: {bias: true}}}\nblocks: {a: {bias: false}}", {"encoder.blocks.a.bias": True}),
    # the rest of a block's definition is kept where a stack changes one field of it
    (LOCAL, "encoder: {}\nencoder.blocks.local.window: 2", {"encoder.blocks.local.norm": LAYER}),
    (LOCAL, "encoder: {blocks: {local: {window: 2}}}", {"encoder.blocks.local.norm": RMS}),
]


@pytest.mark.parametrize(("first", "then", "expected"), WINS)
def test_later_mappings_win_and_within_one_the_narrow_ones(read, at, first, then, expected):
    blueprint = read(SMALL + first, then)
    assert {path: at(blueprint, path) for path in expected} == expected


def test_set_is_a_mapping_of_its_own(read, at):
    options = ["encoder.heads=8", "heads=2", "norm=layernorm", "norm.eps=0.1"]
    blueprint = read(SMALL + T5, sets=options)
    assert (at(blueprint, "encoder.heads"), at(blueprint, "norm.eps")) == (2, 0.1)
    assert at(read(SMALL + T5, sets=["norm.eps=0.1", "norm=layernorm"]), "norm.eps") == 1e-5


def test_order_of_writing_does_not_matter(read):
    lines = ["norm.eps: 0.1", "norm: layernorm", "encoder: {bias: true}", "bias: false", "blocks: {a: {window: 3}}"]
    resolved = [read(SMALL + "\n".join(order)).resolved() for order in permutations(lines)]
    assert all(one == resolved[0] for one in resolved)


# a mapping, then the whole error text
ERRORS = [
    ("norm.epsilon: 1", "0.yaml:3:1: norm.epsilon: reaches nothing"),
    ("attention.kv_heads: 2", "0.yaml:3:1: attention.kv_heads: reaches nothing"),
    ("attention.kv_heads: 2", "attention is 'mha', which has: qk_norm (a norm or null, default null), bias ("),
    ("norm.rmsnorm.eps: 2", "a path skips component names: write norm.eps"),
    ("attention.qk_norm.eps: 2", "qk_norm is not set, which has nothing below it"),
    ("feedforward.hidden.ratio: 2", "hidden is not set, which has nothing below it"),
    ("layers.count: 2", "layers has nothing below it"),
    ("blocks.local.window: 2", "0.yaml:3:1: blocks.local.window: there is no block 'local'"),
    ("blocks: {local: {}}\nblocks.lcoal.window: 2", "did you mean 'local'?\n  blocks: local"),
    ("encoder.heads: 2", "0.yaml:3:1: encoder.heads: the model has one stack"),
    ("encoder: {blocks: {local: {}}}", "encoder.blocks.local: there is no block 'local'"),
    ("encoder: {cross_attention: mha}", "'cross_attention' belongs to the decoder, not to encoder"),
    ("encoder: {dim: 2}", "encoder.dim: 'dim' belongs to the model, not to encoder"),
    ("blocks: {a: {residual: add}}", "blocks.a.residual: 'residual' belongs to the stack, not to blocks.a"),
    ("blocks: {a: {encoder: {}}}", "blocks.a.encoder: is no path\n  blocks.a holds no stack or block"),
    ("blocks: {a: {blocks: {}}}", "a block holds no blocks"),
    ("encoder: {decoder.heads: 2}", "encoder.decoder.heads: is no path"),
    ("encoder: 2", "encoder: must be a mapping of changes, not the number 2"),
    ("blocks: [a]", "blocks: must be a mapping of blocks, not a list"),
    ("blocks: {a: 3}", "blocks.a: must be a mapping of changes, not the number 3"),
    ("blocks: {pattern: {}}", "blocks.pattern: is no name for a block\n  'pattern' already has a meaning"),
    ("blocks: {block: {}}", "blocks.block: is no name for a block"),
    ("blocks: {'a b': {}}", "blocks.a b: is no name for a block\n  use letters, digits, '_' and '-'"),
    ("norm.: 2", "norm.: is no path\n  a path is FIELD, FIELD.PARAMETER"),
    ("encoder: {heads: 2}\nencoder.heads: 4", "0.yaml:4:1: encoder.heads: is set twice, first at 0.yaml:3:11"),
    ("blocks: {a: {}}\nblocks.a: {}", "blocks.a: is set twice"),
    ("encoder: {workloads: []}", "'workloads' stands at the top of a file only and cannot be changed from here"),
]


@pytest.mark.parametrize(("text", "expected"), ERRORS)
def test_a_path_that_reaches_nothing_is_an_error(told, text, expected):
    assert expected in told(SMALL + text)


def test_a_change_of_a_block_that_no_layer_is_of_reaches_nothing(told, read, at):
    text = SMALL + "attention: {gqa: {kv_heads: 2}}\nblocks: {a: {attention: mha}}\nlayers: [a]"
    assert "attention.kv_heads: reaches nothing\n  did you mean" not in (
        error := told(text, sets=["attention.kv_heads=4"])
    )
    assert "attention is 'mha'" in error
    # what the stack itself takes from its unnamed block counts: the position that is added to embeddings
    learned = SMALL + "position: learned\nblocks: {a: {position: none}}\nlayers: [a]"
    assert at(read(learned, sets=["position.max_tokens=9"]), "position.max_tokens") == 9
