"""One architecture, written as configs of several years write it: the same blueprint. transformers agrees."""

from __future__ import annotations

from copy import deepcopy

import pytest
import transformers

import explorer
from explorer.huggingface.components import DEFAULTS, FORMS
from explorer.huggingface.import_config import import_config
from explorer.huggingface.layers import written
from explorer.registry import load_registry
from tests.huggingface.hf_configs import CASES

YARN = {"factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 16.0}
GLOBAL, LOCAL = {"rope_type": "default", "rope_theta": 5e5}, {"rope_type": "default", "rope_theta": 100.0}
V4_SIZES = {"num_hidden_layers": 4, "head_dim": 16}
FORMS_OF_A_CONFIG = [
    ("llama", {"rope_theta": 5e5}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    (
        "llama",
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}},
    ),
    (
        "qwen2",
        {"rope_scaling": {"rope_type": "yarn", "type": "yarn", **YARN}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, **YARN}},
    ),
    (
        "llama",
        {
            "max_position_embeddings": 64,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        },
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
                "rope_theta": 10000.0,
            }
        },
    ),
    (
        "llama",
        {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    ("gpt_oss", {"rope_theta": 500.0}, {"rope_theta": 500.0, "rope_parameters": None}),
    ("gpt_oss", {"rope_scaling": {"rope_type": "default"}}, {"rope_parameters": LOCAL | {"rope_theta": 150000.0}}),
    (
        "gpt_neox",
        {"rotary_pct": 0.5, "rotary_emb_base": 500},
        {"rope_parameters": GLOBAL | {"rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ),
    ("phi3", {"partial_rotary_factor": 0.5}, {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    (
        "gemma3_text",
        {"rope_theta": 5e5, "rope_local_base_freq": 100.0},
        {"rope_parameters": {"full_attention": GLOBAL, "sliding_attention": LOCAL}},
    ),
    (
        "gemma3_text",
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}}},
    ),
    (
        "gemma3_text",
        {"num_hidden_layers": 4, "sliding_window_pattern": 2},
        {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2},
    ),
    (
        "gemma2",
        {"num_hidden_layers": 2},
        {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    (
        "qwen3",
        {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
        {
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 9,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
    ),
    (
        "qwen3_next",
        {"num_hidden_layers": 4, "full_attention_interval": 2},
        {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2},
    ),
    ("gpt2", {"n_embd": 64, "n_layer": 3}, {"hidden_size": 64, "num_hidden_layers": 3}),
    ("bloom", {"n_embed": 16, "num_attention_heads": 4}, {"hidden_size": 16, "n_head": 4}),
    ("mixtral", {"num_experts": 4}, {"num_local_experts": 4}),
    ("deepseek_v3", {"num_nextn_predict_layers": 2}, {"num_mtp_layers": 2}),
    ("llama", {"torch_dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    ("t5", {"feed_forward_proj": "gated-gelu"}, {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new"}),
    (
        "kimi_linear",
        {
            "num_hidden_layers": 3,
            "linear_attn_config": {
                "full_attn_layers": [3],
                "kda_layers": [1, 2],
                "head_dim": 8,
                "num_heads": 3,
                "short_conv_kernel_size": 3,
            },
        },
        {
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"],
            "linear_head_dim": 8,
            "linear_num_heads": 3,
            "linear_conv_kernel_dim": 3,
        },
    ),
    (
        "deepseek_v4",
        {**V4_SIZES, "compress_ratios": [0, 4, 128, 4, 0], "qk_rope_head_dim": 8, "num_hash_layers": 1},
        {
            **V4_SIZES,
            "layer_types": [
                "sliding_attention",
                "compressed_sparse_attention",
                "heavily_compressed_attention",
                "compressed_sparse_attention",
            ],
            "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"],
            "partial_rotary_factor": 0.5,
        },
    ),
    (
        "deepseek_v4",
        {"rope_scaling": {"type": "yarn", **YARN}, "rope_theta": 500.0, "compress_rate_csa": 8},
        {
            "rope_parameters": {
                "main": LOCAL | {"rope_theta": 500.0, "partial_rotary_factor": 0.125},
                "compress": {
                    "rope_type": "yarn",
                    "rope_theta": 160000.0,
                    "partial_rotary_factor": 0.125,
                    "attention_factor": 1.0,
                    **YARN,
                },
            },
            "compress_rates": {"compressed_sparse_attention": 8, "heavily_compressed_attention": 128},
        },
    ),
]


@pytest.fixture(autouse=True)
def _silent():
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize(("model_type", "one", "other"), FORMS_OF_A_CONFIG)
def test_two_forms_are_one_blueprint(model_type, one, other):
    assert import_config({"model_type": model_type, **one}) == import_config({"model_type": model_type, **other})


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("row", FORMS_OF_A_CONFIG, ids=lambda row: row[0])
def test_transformers_reads_them_so(row, form):
    model_type, written_so = row[0], row[form]
    config = CASES[model_type].config(deepcopy(written_so))  # it writes into what it reads
    assert import_config(config.to_dict()) == import_config({"model_type": model_type, **written_so})


def test_a_model_that_also_sees_is_its_text_model():
    text = {"num_hidden_layers": 7, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    config = transformers.Gemma3Config(text_config=dict(text), vision_config={"num_hidden_layers": 1})
    alone = import_config({"model_type": "gemma3_text", **text})
    assert import_config(config.to_dict()) == alone
    assert import_config({"model_type": "gemma3", "text_config": text, "vision_config": {}}) == alone


PATTERNS = [
    ("aaaa", [{"a": 4}]),
    ("abbb", ["a", {"b": 3}]),
    ("abab", {"pattern": ["a", "b"], "count": 4}),
    ("aabaaba", {"pattern": [{"a": 2}, "b"], "count": 7}),
    ("xababab", ["x", {"pattern": ["a", "b"], "count": 6}]),
    ("xxyababab", [{"x": 2}, "y", {"pattern": ["a", "b"], "count": 6}]),
    ("abababz", [{"pattern": ["a", "b"], "count": 6}, "z"]),
    ("ab", ["a", "b"]),
    ("a", ["a"]),
]


@pytest.mark.parametrize(("layers", "expected"), PATTERNS)
def test_layers_are_written_short(layers, expected):
    assert written(list(layers)) == expected


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_what_is_left_out_is_the_default_of_the_component(name):
    """Else a blueprint would say something else than the config."""
    component = next(c for c in _components() if c.name == name)
    defaults = {name: parameter.default for name, parameter in component.schema.parameters.items()}
    assert {key: defaults[key] for key in DEFAULTS[name]} == dict(DEFAULTS[name])


def _components():
    registry = load_registry()
    for kind in ("norm", "position", "attention", "feedforward", "activation", "residual"):
        yield from registry.components(kind)


def test_forms_are_left_out_at_their_defaults_too():
    scaling = {"yarn": {"factor": 2, "original": 64}}
    long = {"yarn": {**scaling["yarn"], **FORMS["yarn"]}}
    bare, full = (
        explorer.load({"dim": 16, "heads": 2, "position": {"rope": {"scaling": form}}}).plan().stack.base.position
        for form in (scaling, long)
    )
    assert bare.build({"head_dim": 8}).scaling == full.build({"head_dim": 8}).scaling
