"""Error texts: where, what with the value, what would do; all of a file at once."""

from __future__ import annotations

import pytest

SMALL = "dim: 64\nheads: 4\n"

# one line of a file, then what its error says
ERRORS = [
    # unknown keys at every level, and where they belong
    (
        "attentoin: mha",
        "0.yaml:3:1: attentoin: there is no field 'attentoin'\n  did you mean 'attention'?\n  fields: dim, ",
    ),
    (
        "kv_heads: 8",
        "kv_heads: there is no field 'kv_heads'\n"
        "  'kv_heads' is a parameter of attention 'gqa': write `attention.kv_heads: ...`",
    ),
    (
        "blocks: {a: {kv_heads: 8}}",
        "0.yaml:3:14: blocks.a.kv_heads: there is no field 'kv_heads'\n  'kv_heads' is a parameter",
    ),
    ("eps: 8", "'eps' is a parameter of norm 'layernorm' and 'rmsnorm': write `norm.eps: ...`"),
    ("gqa: {kv_heads: 8}", "'gqa' is of kind attention: write `attention: gqa`"),
    ("workload: []", "did you mean 'workloads'?"),
    ("encoder: {windows: 2}", "0.yaml:3:11: encoder.windows: there is no field 'windows'\n  did you mean 'window'?"),
    (
        "norm: {rmsnorm: {epsilon: 1}}",
        "0.yaml:3:18: norm.epsilon: norm 'rmsnorm' has no parameter 'epsilon'\n  did you mean 'eps'?\n"
        "  it has: eps (float > 0, default 1e-06), offset (float, default 0.0)",
    ),
    ("norm: {rmsnorm: {heads: 1}}", "'heads' is a field of the block: write it beside norm"),
    (
        "attention: {mha: {window: 8}}",
        "attention 'mha' has no parameter 'window'\n  'window' is a field of the block: write it beside attention",
    ),
    ("attention: {mha: {kv_heads: 8}}", "'kv_heads' is a parameter of attention 'gqa': write {gqa: {kv_heads: ...}}"),
    (
        "attention: {mha: {qk_norm: {rmsnorm: {epz: 1}}}}",
        "0.yaml:3:39: attention.qk_norm.epz: norm 'rmsnorm' has no parameter 'epz'",
    ),
    ("dropout: {attn: 0.1}", "dropout.attn: dropout has no parameter 'attn'"),
    ("embedding: {scales: 1}", "embedding has no parameter 'scales'\n  did you mean 'scale'?"),
    ("head: {lm: {softcapp: 1}}", "head 'lm' has no parameter 'softcapp'\n  did you mean 'softcap'?"),
    (
        "feedforward: {dense: {hidden: {ratio: 2, multiple: 4}}}",
        "0.yaml:3:31: feedforward.hidden: 'multiple' is unknown here; it takes ratio and multiple_of",
    ),
    # unknown components
    (
        "norm: rmsnrom",
        "0.yaml:3:7: norm: no norm is called 'rmsnrom'\n  did you mean 'rmsnorm'?\n"
        "  installed: layernorm, none, rmsnorm",
    ),
    ("norm: relu", "no norm is called 'relu'\n  'relu' is of kind activation"),
    (
        "layout: paralel",
        "no layout is called 'paralel'\n  did you mean 'parallel'?\n  it is one of: sequential, parallel",
    ),
    ("attention: {kv_heads: 8}", "no attention is called 'kv_heads'\n  'kv_heads' is a parameter of attention 'gqa'"),
    ("attention: gqa:kv_heads=8", "write {gqa: {...}}; `name:key=value` is for command line options"),
    (
        "attention: {type: gqa, kv_heads: 8}",
        "an attention is a name or a mapping with that one key, not a mapping of 2 keys\n"
        "  write {gqa: {kv_heads: ...}}",
    ),
    (
        "attention: {gqa: {kv_heads: 1}, heads: 8}",
        "write {gqa: {}}\n  'heads' is a field of the block: write it beside attention",
    ),
    ("attention: {}", "not a mapping of 0 keys\n  write {NAME: {}}"),
    (
        "attention: {gqa: 8}",
        "attention: parameters are a mapping, not the number 8\n  it takes: kv_heads (int >= 1, required)",
    ),
    # off, no, none
    ("norm: off", "0.yaml:3:7: norm: off means false in YAML 1.1 and is a word in YAML 1.2"),
    ("bias: no", "0.yaml:3:7: bias: no means false in YAML 1.1"),
    (
        "norm: false",
        "norm: must name a norm, not false\n  write none where there shall be none\n  norms: layernorm, none, rmsnorm",
    ),
    ("residual: true", "residual: must name a residual, not true\n  residuals: add, "),
    ("norm: [rmsnorm]", "must name a norm, not a list"),
    ("final_norm: false", "final_norm: must name a norm or be auto or none or true, not false"),
    ("final_norm: 1", "final_norm: must name a norm or be auto or none or true, not the number 1"),
    ("activation: null", "must name an activation, not null\n  activations: gelu, leaky, relu, swiglu, tanh"),
    ("init: null", "must name an init, not null"),
    (
        "dropout: 0.1",
        "dropout: parameters are a mapping, not the number 0.1\n  it takes: embedding (float >= 0 and < 1",
    ),
    ("window: none", "window: must be int >= 1"),
    ("window: none", "not the text 'none'\n  write null"),
    ("placement: before", "placement: must be pre or post or sandwich or res_post or none, not the text 'before'"),
    ("placement: sandwhich", "did you mean 'sandwich'?"),
    # types and bounds
    ("seed: true", "0.yaml:3:7: seed: must be int >= 0"),
    ("window: 4.0", "not the number 4.0\n  write 4"),
    ("window: 4.5", "window: must be int >= 1"),
    ("window: '4'", "not the text '4'\n  without quotes it is a number"),
    ("bias: 1", "bias: must be true or false, not the number 1"),
    ("causal: 'true'", "causal: must be true or false, not the text 'true'"),
    ("vocab: 0", "vocab: must be int >= 1"),
    ("vocab: -5", "not the number -5"),
    ("vocab: 99999999999", "vocab: must be int >= 1 and <= 2147483647"),
    ("norm: {rmsnorm: {eps: 0}}", "norm.eps: must be float > 0, not the number 0"),
    ("norm: {rmsnorm: {eps: true}}", "norm.eps: must be float > 0, not true"),
    ("norm: {rmsnorm: {eps: .nan}}", ".nan is not a finite number"),
    ("dropout: {attention: 1}", "dropout.attention: must be float >= 0 and < 1, not the number 1"),
    (
        "attention: {gqa: {kv_heads: 1, qk_norm_over: heads}}",
        "qk_norm_over: must be head or all, not the text 'heads'\n  did you mean 'head'?",
    ),
    (
        "attention: {mha: {bias: qvk}}",
        "attention.bias: must be true or false or qkv or out, not the text 'qvk'\n  did you mean 'qkv'?",
    ),
    ("feedforward: {dense: {hidden: 1365.33}}", "feedforward.hidden: a width must be a whole number, not 1365.33"),
    ("feedforward: {dense: {hidden: 64.0}}", "a width must be a whole number, not 64.0\n  write 64"),
    (
        "feedforward: {dense: {hidden: 8/3}}",
        "not '8/3'\n  it takes int >= 1 or {ratio: number or fraction, multiple_of: int >= 1} or null",
    ),
    ("feedforward: {dense: {hidden: {ratio: 8/0}}}", "ratio must be a number or a fraction such as 8/3, not '8/0'"),
    ("feedforward: {dense: {hidden: {ratio: -1}}}", "ratio must be above 0"),
    ("feedforward: {dense: {hidden: {multiple_of: 4}}}", "ratio is missing"),
    ("embedding: {scale: 0}", "embedding.scale: must be float > 0 or sqrt_dim or null, not the number 0"),
    (
        "head: {lm: {scale: sqrt_dim}}",
        "head.scale: must be float > 0 or rsqrt_dim or null, not the text 'sqrt_dim'\n  did you mean 'rsqrt_dim'?",
    ),
]


@pytest.mark.parametrize(("text", "expected"), ERRORS)
def test_error_text(told, text, expected):
    assert expected in told(SMALL + text)


def test_all_problems_of_a_file_at_once_in_the_order_of_lines(told):
    text = """\
name: 3
dim: 100
heads: 12
attentoin: mha
norm: {rmsnorm: {epsilon: off}}
attention: gqa
blocks: {a: {widnow: 3}}
layers: [a, b]
bias: yes
bias: 0
workloads: [{phase: decode}]
skip: [{nrom: none}]
match: {}
"""
    places = [line.split(": ")[:2] for line in told(text).splitlines() if not line.startswith(" ")]
    assert places == [
        ["0.yaml:1:7", "name"],
        ["0.yaml:3:1", "blocks.a.heads"],
        ["0.yaml:4:1", "attentoin"],
        ["0.yaml:5:18", "norm.epsilon"],
        ["0.yaml:5:27", "norm.rmsnorm.epsilon"],
        ["0.yaml:6:12", "blocks.a.attention"],
        ["0.yaml:7:14", "blocks.a.widnow"],
        ["0.yaml:8:1", "layers"],
        ["0.yaml:9:7", "bias"],
        ["0.yaml:10:1", "bias"],
        ["0.yaml:11:13", "workloads[0]"],
        ["0.yaml:12:9", "skip[0].nrom"],
        ["0.yaml:13:8", "match"],
    ]


def test_problems_of_a_base_come_before_those_of_the_file(told):
    error = told("dim: 64\nheads: x", "norm: 3\nvocab: -1")
    assert [line.split(": ")[0] for line in error.splitlines() if line[0] != " "] == [
        "0.yaml:2:8",
        "1.yaml:1:7",
        "1.yaml:2:8",
    ]


def test_a_mapping_from_python_has_paths_instead_of_lines(told):
    error = told({"dim": 64, "heads": 0, "norm": {"rmsnorm": {"eps": float("nan")}}, "blocks": {"a": {"heads": {1}}}})
    assert "<mapping>: norm.rmsnorm.eps: nan is not a finite number" in error
    error = told({"dim": 64, "heads": 0, "norm": {"rmsnorm": {"eps": -1}}})
    assert error.splitlines()[0].startswith("<mapping>: heads: must be int >= 1")
    assert error.splitlines()[1].startswith("<mapping>: norm.eps: must be float > 0")
    assert told({"heads": 4}).startswith("<mapping>: dim: 'dim' must be written")


def test_a_wrong_signature_matters_only_where_the_component_is_chosen(read, registry, plugin):
    from explorer.errors import PluginError
    from explorer.registry.registry import Registry

    broken = Registry((*registry.packages, plugin("bad", {"attention": {"untyped": lambda dim, *, kv_heads: None}})))
    read(SMALL, registry=broken).plan()
    with pytest.raises(PluginError, match=r"'untyped' of bad-dist 1\.0"):
        read(SMALL + "attention: untyped", registry=broken).plan()
