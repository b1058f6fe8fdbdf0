"""From fields to a plan: defaults, what follows from what, and what stands against a plan."""

from __future__ import annotations

import pytest

SMALL = "dim: 64\nheads: 4\n"


def test_defaults_are_those_of_the_language(read):
    assert read({"dim": 64, "heads": 4}).resolved() == {
        "name": "blueprint",
        "dim": 64,
        "vocab": None,
        "embedding": {"scale": None, "norm": None, "types": 0},
        "head": {"lm": {"bias": False, "scale": None, "softcap": None}},
        "tie_embeddings": False,
        "init": "torch",
        "seed": 0,
        "residual": "add",
        "final_norm": {"rmsnorm": {"eps": 1e-6, "offset": 0.0}},
        "heads": 4,
        "head_dim": 16,
        "norm": {"rmsnorm": {"eps": 1e-6, "offset": 0.0}},
        "placement": "pre",
        "layout": "sequential",
        "position": {"rope": {"base": 10000.0, "at": "start"}},
        "attention": {"mha": {"qk_norm": None}},
        "feedforward": {"dense": {"hidden": None}},
        "activation": "swiglu",
        "bias": False,
        "causal": True,
        "window": None,
        "dropout": {"embedding": 0.0, "attention": 0.0, "activation": 0.0, "sublayer": 0.0},
        "workloads": [{"phase": "prefill", "batch": 1, "dtype": "bfloat16"}],
    }


# text, path in the resolved blueprint, value in force
IN_FORCE = [
    ("head_dim: 8", "head_dim", 8),
    ("heads: 12\nhead_dim: 5", "head_dim", 5),
    ("heads: 12\nattention: none", "head_dim", None),
    ("encoder: {}", "encoder.causal", False),
    ("encoder: {}", "decoder.causal", True),
    ("encoder: {causal: true}", "encoder.causal", True),
    ("encoder: {}\ncausal: true", "encoder.causal", True),
    ("decoder: {}", "encoder.causal", False),
    ("encoder: {}\nattention: mha_naive", "decoder.cross_attention", "mha_naive"),
    ("encoder: {}\ncross_attention: none", "decoder.cross_attention", "none"),
    ("encoder: {}\ncross_attention: null", "decoder.cross_attention", {"mha": {"qk_norm": None}}),
    ("encoder: {}\ndecoder.layers: 2", "decoder.layers", 2),
    # final_norm: auto is `norm` with pre, sandwich and res_post
    ("norm: layernorm\nplacement: sandwich", "final_norm", {"layernorm": {"eps": 1e-5, "bias": True}}),
    ("norm: layernorm\nplacement: res_post", "final_norm", {"layernorm": {"eps": 1e-5, "bias": True}}),
    ("norm: layernorm\nplacement: post", "final_norm", "none"),
    ("norm: layernorm\nplacement: none", "final_norm", "none"),
    ("placement: post\nfinal_norm: true", "final_norm", {"rmsnorm": {"eps": 1e-6, "offset": 0.0}}),
    ("final_norm: none", "final_norm", "none"),
    ("final_norm: layernorm", "final_norm", {"layernorm": {"eps": 1e-5, "bias": True}}),
    # null means none where none is a choice and no other meaning is given
    *(
        (f"{field}: null", field, "none")
        for field in ("norm", "position", "attention", "feedforward", "residual", "head")
    ),
    ("placement: null", "placement", "none"),
    ("final_norm: null", "final_norm", "none"),
    ("attention: {mha: {qk_norm: none}}", "attention.mha.qk_norm", None),
    ("embedding: {norm: none}", "embedding.norm", None),
    ("dropout: null", "dropout.attention", 0.0),
    ("embedding: null", "embedding.types", 0),
    ("init: {normal: {output: null}}", "init.normal.output", "none"),
    # a component is a name or a one-key mapping, also without parameters, nested ones included
    ("attention: {mha: {}}", "attention", {"mha": {"qk_norm": None}}),
    ("attention: {mha: }", "attention", {"mha": {"qk_norm": None}}),
    ("attention: {toys:mha: {}}", "attention", {"mha": {"qk_norm": None}}),
    (
        "attention: {mha: {qk_norm: {rmsnorm: {eps: 1}}}}",
        "attention.mha.qk_norm",
        {"rmsnorm": {"eps": 1.0, "offset": 0.0}},
    ),
    ("attention: {mla: {act: {leaky: {slope: 0.2}}}}", "attention.mla.act", {"leaky": {"slope": 0.2}}),
    ("head: {pooler: {activation: tanh}}", "head", {"pooler": {"activation": "tanh"}}),
    ("head: pooler", "head", {"pooler": {"activation": "tanh"}}),
    ("attention: mla", "attention.mla.norm", {"rmsnorm": {"eps": 1e-6, "offset": 0.0}}),
    ("layout: parallel", "layout", {"parallel": {"shared_norm": True}}),
    # the component's own bias is shown where it is written, else the block's counts
    ("attention: {mha: {bias: out}}", "attention.mha.bias", "out"),
    ("feedforward: {dense: {hidden: {ratio: 8/3, multiple_of: 256}}}", "feedforward.dense.hidden.ratio", "8/3"),
    ("norm: {rmsnorm: {eps: 1}}", "norm.rmsnorm.eps", 1.0),
]


@pytest.mark.parametrize(("text", "path", "value"), IN_FORCE)
def test_value_in_force(read, text, path, value):
    found = read(SMALL.replace("heads: 4\n", "") + text if text.startswith("heads") else SMALL + text).resolved()
    for step in path.split("."):
        found = found[step]
    assert found == value


def test_what_the_plan_takes_from_fields(read):
    plan = read(
        SMALL + "vocab: 10\nembedding: {scale: sqrt_dim, norm: true, types: 2}\nnorm: layernorm\nlayout: parallel\n"
        "blocks: {local: {window: 8, heads: 8}}\nlayers: [local, block]\ndropout: {sublayer: 0.5}"
    ).plan()
    base, local = plan.stack.blocks["block"], plan.stack.blocks["local"]
    assert (plan.embedding.scale, plan.embedding.types) == (8.0, 2)
    assert plan.embedding.norm is not None
    assert plan.embedding.norm.name == "layernorm"
    assert (base.head_dim, local.head_dim, local.window, local.shared_norm) == (16, 8, 8, True)
    assert (base.dropout.sublayer, base.cross_attention, plan.stack.layers) == (0.5, None, ("local", "block"))
    assert plan.whole


@pytest.mark.parametrize(
    ("text", "whole"), [("", False), ("layers: 1", True), ("vocab: 8", True), ("encoder: {}", False)]
)
def test_a_model_is_written_by_layers_or_vocab(read, text, whole):
    assert read(SMALL + text).plan().whole is whole


def test_heads_may_stand_in_the_blocks_only(read):
    plan = read("dim: 64\nblocks: {a: {heads: 8}}\nlayers: [a]").plan()
    assert (plan.stack.blocks["a"].head_dim, plan.stack.base.head_dim) == (8, 8)


HEADS = [
    ("dim: 100\nheads: 12", "100/12 = 8.33", "heads that do: 4, 5, 10, 20; or give `head_dim`"),
    ("dim: 64\nheads: 65", "64/65 = 0.98", "8, 16, 32, 64"),
    ("dim: 7\nheads: 2", "7/2 = 3.50", "heads that do: 1, 7"),
    ("dim: 64\nheads: 4\nblocks: {a: {heads: 3}}", "blocks.a.heads: heads 3 does not divide dim 64", "1, 2, 4, 8"),
    ("dim: 64\nheads: 4\nencoder: {heads: 3}", "encoder.heads: heads 3 does not divide dim 64", "1, 2, 4, 8"),
    ("dim: 64\nheads: 3\nencoder: {}\nattention: none\ncross_attention: mha", "decoder.heads: heads 3", "1, 2, 4, 8"),
]


@pytest.mark.parametrize(("text", "fault", "hint"), HEADS)
def test_heads_that_do_not_divide_dim(told, text, fault, hint):
    error = told(text)
    assert fault in error
    assert hint in error
    assert error.count("does not divide") == 1


@pytest.mark.parametrize("text", ["head_dim: 8", "attention: none", "attention: null"])
def test_heads_need_not_divide_dim(read, text):
    read(f"dim: 100\nheads: 12\n{text}").plan()


FAULTS = [
    ("heads: 4", "0.yaml:1:1: dim: 'dim' must be written; it has no default\n  write `dim: ...`, int >= 1"),
    ("dim: 64", "0.yaml:1:1: heads: 'heads' must be written"),
    ("dim: 64\nblocks: {a: {heads: 4}, b: {}}\nlayers: [a, b]", "blocks.b.heads: 'heads' must be written"),
    (
        SMALL + "attention: gqa",
        "0.yaml:3:12: attention: attention 'gqa' needs kv_heads\n  write {gqa: {kv_heads: ...}}, int >= 1",
    ),
    (SMALL + "attention: {gqa: {scale: 1}}", "0.yaml:3:13: attention: attention 'gqa' needs kv_heads"),
    (SMALL + "cross_attention: gqa", "only the decoder of an encoder-decoder has cross-attention"),
    (SMALL + "encoder: {}\nlayout: parallel", "a parallel layout is defined for self-attention and feed-forward only"),
    (SMALL + "tie_embeddings: true", "0.yaml:3:1: tie_embeddings: there is no table to tie: write `vocab`"),
    (SMALL + "layers: [local]", "0.yaml:3:1: layers: there is no block 'local'\n  blocks: none are defined"),
    (SMALL + "blocks: {local: {}}\nlayers: lcoal", "did you mean 'local'?\n  blocks: local"),
]


@pytest.mark.parametrize(("text", "expected"), FAULTS)
def test_what_stands_against_a_plan(told, text, expected):
    assert expected in told(text)


def test_a_fault_that_many_blocks_share_is_told_once(told):
    error = told(SMALL + "attention: gqa\nencoder: {}\nblocks: {a: {}, b: {}}\nlayers: [a, b]")
    assert error.count("needs kv_heads") == 1


def test_a_default_that_is_not_installed_is_missed_only_where_it_is_in_force(read, told, plugin):
    from explorer.registry.registry import Registry

    norms = {"norm": {"scalenorm": lambda dim: None}}
    bare = Registry((plugin("bare", norms),))
    error = told(SMALL, registry=bare)
    assert "norm: its default cannot be used: no norm is called 'rmsnorm'\n" in error
    assert "\n  installed: scalenorm\n" in error
    assert "position: its default cannot be used: no position is called 'rope'" in error
    assert "norm: its default" not in told(SMALL + "norm: scalenorm", registry=bare).replace("final_norm", "")


def test_a_default_that_two_packages_offer_is_named_with_both(read, told, plugin, registry):
    from explorer.registry.registry import Registry

    both = Registry((*registry.packages, plugin("lab", {"norm": {"rmsnorm": lambda dim: None}})))
    assert told(SMALL, registry=both) == (
        "0.yaml:1:1: norm: its default cannot be used: "
        "two packages offer the norm 'rmsnorm': lab-dist 1.0 (lab) and toys-dist 1.0 (toys)\n"
        "  write 'lab:rmsnorm' for the one of lab-dist 1.0\n"
        "  write 'toys:rmsnorm' for the one of toys-dist 1.0"
    )
    assert read(SMALL + "norm: lab:rmsnorm", registry=both).plan().stack.base.norm.component.package == "lab"


LAYERS = [
    ("3", ("block",) * 3),
    ("a", ("a",)),
    ("[a, b]", ("a", "b")),
    ("{a: 2}", ("a", "a")),
    ("[{a: 2}, b]", ("a", "a", "b")),
    ("{pattern: [{a: 2}, b], count: 7}", tuple("aabaaba")),
    ("{pattern: a, count: 2}", ("a", "a")),
    ("{pattern: [a, b], count: 1}", ("a",)),
    ("[a, {b: 2}, {pattern: [{a: 2}, b], count: 4}, b]", tuple("abbaabab")),
    ("[{pattern: [{pattern: [a, b], count: 3}, b], count: 5}]", tuple("ababa")),
    ("[block, a]", ("block", "a")),
]


@pytest.mark.parametrize(("written", "layers"), LAYERS)
def test_layers(read, written, layers):
    blueprint = read(SMALL + f"blocks: {{a: {{window: 1}}, b: {{window: 2}}}}\nlayers: {written}")
    assert blueprint.plan().stack.layers == layers
    assert read(blueprint.resolved()).plan().stack.layers == layers


BAD_LAYERS = [
    ("0", "must be an int from 1 to 100,000, not the number 0"),
    ("-1", "not the number -1"),
    ("200000", "not the number 200000"),
    ("true", "true is no layer"),
    ("2.0", "the number 2.0 is no layer\n  write 2\n  layers is a count"),
    ("null", "null is no layer"),
    ("[2]", "layers[0]: the number 2 is no layer"),
    ("[]", "a stack needs at least one layer"),
    ("{a: 0}", "layers.a: must be an int from 1"),
    ("{a: 1, b: 2}", "a mapping with the keys a, b is no layer"),
    ("{pattern: [a]}", "a mapping with the keys pattern is no layer"),
    ("{pattern: [], count: 3}", "layers.pattern: the pattern is empty"),
    ("{pattern: [a], count: x}", "layers.count: must be an int"),
    ("[{a: 60000}, {a: 60000}]", "more than 100,000 layers"),
    ("{pattern: {pattern: {pattern: a, count: 100000}, count: 100000}, count: 100001}", "layers.count: must be an int"),
]


@pytest.mark.parametrize(("written", "expected"), BAD_LAYERS)
def test_what_is_no_layer(told, written, expected):
    assert expected in told(SMALL + f"blocks: {{a: {{}}, b: {{}}}}\nlayers: {written}")


def test_an_encoder_decoder_becomes_one_stack_again(read):
    base = SMALL + "encoder: {layers: 2}\ndecoder: {layers: 3}"
    assert [stack.name for stack in read(base).plan().stacks] == ["encoder", "decoder"]
    assert [stack.name for stack in read(base, "encoder: null").plan().stacks] == ["encoder", "decoder"]
    assert [stack.name for stack in read(base, "encoder: null\ndecoder: null\nlayers: 5").plan().stacks] == [""]
