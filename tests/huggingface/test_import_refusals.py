"""What is not understood is named, with its value and its place: nothing of a config is dropped in silence."""

from __future__ import annotations

import json
import re

import pytest

from explorer.errors import BlueprintError
from explorer.huggingface.families import FAMILIES
from explorer.huggingface.import_config import import_config, read_import
from explorer.huggingface.json_source import parsed, read_config

NEEDED = {"deepseek_v2": {"num_experts_per_tok": 6}, "gemma3": {"text_config": {"num_hidden_layers": 6}}}


def problems_of(config):
    with pytest.raises(BlueprintError) as caught:
        import_config(config)
    return [(problem.path, problem.message) for problem in caught.value.problems]


def problem_of(**config):
    (problem,) = problems_of(config)
    return problem


REFUSED = [  # what of a config, what is said of it
    ("llama", {"brand_new": 3}, "brand_new: 3 is not understood: it may change the architecture"),
    ("llama", {"brand_new": None}, "brand_new: null is not understood"),
    ("llama", {"rms_norm_epsilon": 1e-5}, "rms_norm_epsilon: 1e-05 is not understood.*\n.*did you mean 'rms_norm_eps'"),
    ("llama", {"hidden_act": "xielu"}, 'hidden_act: must be one of silu, .*not "xielu"'),
    ("bert", {"hidden_act": "gelu_10"}, 'hidden_act: must be one of gelu, .*not "gelu_10"'),
    ("llama", {"hidden_size": "4096"}, 'hidden_size: must be a whole number of at least 1, not "4096"'),
    ("llama", {"hidden_size": 4096.5}, "hidden_size: must be a whole number of at least 1, not 4096.5"),
    ("llama", {"hidden_size": None}, "hidden_size: must be a whole number of at least 1, not null"),
    ("llama", {"hidden_size": True}, "hidden_size: must be a whole number of at least 1, not true"),
    ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers: must be a whole number from 1 to 100,000"),
    ("llama", {"attention_bias": 1}, "attention_bias: must be true or false, not 1"),
    ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps: must be a number above 0, not NaN"),
    ("llama", {"attention_dropout": 1}, "attention_dropout: must be a number from 0 to below 1, not 1"),
    ("llama", {"num_key_value_heads": 5}, "num_key_value_heads: heads 32 must divide by kv_heads 5"),
    ("llama", {"is_encoder_decoder": True}, "is_encoder_decoder: true is not supported, only false"),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2}}, 'rope_scaling.type: "dynamic" is not supported'),
    ("llama", {"rope_scaling": {"type": "yran", "factor": 2}}, "rope_scaling.type: .*\\n  did you mean 'yarn'"),
    ("llama", {"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: is missing: a number of at least 1"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2, "alpha": 3}}, "rope_scaling.alpha: 3 is not understood"),
    ("llama", {"rope_scaling": 8}, "rope_scaling: must be a mapping, not 8"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported: this model rotates whole"),
    (
        "llama",
        {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
        "rope_parameters.rope_theta: 500000.0 is not the 10000.0 of rope_theta, which says the same",
    ),
    (
        "llama",
        {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "linear", "factor": 4}},
        "rope_scaling: is not what rope_parameters says",
    ),
    (
        "llama",
        {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
        "rope_parameters.full_attention: .* is not understood",
    ),
    ("mistral", {"layer_types": ["full_attention"]}, "layer_types: .* is not understood"),
    ("qwen2", {"use_mrope": True}, "use_mrope: true is not supported, only false"),
    ("qwen2", {"num_hidden_layers": 2, "layer_types": ["full_attention"]}, "layer_types: lists 1 layers, .* has 2"),
    (
        "qwen2",
        {"num_hidden_layers": 1, "layer_types": ["chunked_attention"]},
        'layer_types: "chunked_attention" is not supported\n.*known: full_attention, sliding_attention',
    ),
    (
        "qwen2",
        {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]},
        "layer_types: has sliding layers, and the config no sliding_window in use",
    ),
    ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, 'rope_scaling.type: "longrope" is not'),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: true is not supported"),
    ("gpt2", {"n_embd": 64, "hidden_size": 32}, "hidden_size: 32 is not the 64 of n_embd, which says the same"),
    ("gptj", {"rotary_dim": 7}, "rotary_dim: 7 must be even and at most the 256 channels of a head"),
    ("gpt_neox", {"rotary_pct": 0.1}, "rotary_pct: 0.1 of 96 channels are 9, and they are rotated in pairs"),
    ("gpt_neox", {"rotary_pct": 0.01}, "rotary_pct: 0.01 of 96 channels are 0, and they are rotated in pairs"),
    ("bert", {"position_embedding_type": "relative_key"}, 'position_embedding_type: "relative_key" is not supported'),
    ("bert", {"is_decoder": True}, "is_decoder: true is not supported, only false"),
    ("t5", {"feed_forward_proj": "gated-xielu"}, 'feed_forward_proj: "gated-xielu" is not supported'),
    ("t5", {"dense_act_fn": "silu"}, 'dense_act_fn: "silu" is not supported, only "relu": other fields say so'),
    ("t5", {"is_encoder_decoder": False}, "is_encoder_decoder: false is not supported, only true"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention: true is not supported"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: 50.0 is not supported, only null"),
    ("gemma3", {"text_config": {"odd": 1}}, "text_config.odd: 1 is not understood"),
    ("gemma3", {"text_config": None}, "text_config: is missing: a mapping"),
    ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise: 0.1 is not supported, only 0"),
    ("deepseek_v2", {"num_experts_per_tok": None}, "num_experts_per_tok: must be a whole number .*, not null"),
    ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob: true is not supported, only false"),
    ("deepseek_v3", {"scoring_func": "softmax"}, 'scoring_func: "softmax" is not supported, only "sigmoid"'),
    ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq: 2 is not supported, only 1"),
    ("deepseek_v3", {"num_key_value_heads": 8}, "num_key_value_heads: 8 is not supported, only 128: all heads of"),
    ("deepseek_v3", {"q_lora_rank": None, "attention_bias": True}, "attention_bias: true is not supported without q_"),
    ("deepseek_v4", {"rms_norm_eps": 1e-5}, "rms_norm_eps: 1e-05 is not supported, only 1e-06: csa and hca have"),
    ("deepseek_v4", {"hc_eps": 0.1}, "hc_eps: 0.1 is not supported: mhc adds nothing"),
    ("deepseek_v4", {"num_hidden_layers": 1, "compress_ratios": [16]}, "compress_ratios: 16 is not supported"),
    ("qwen3_next", {"rms_norm_eps": 1e-5}, "rms_norm_eps: 1e-05 is not supported, only 1e-06: gated_deltanet has"),
    ("kimi_linear", {"tie_word_embeddings": True}, "tie_word_embeddings: true is not supported"),
    (
        "kimi_linear",
        {"num_hidden_layers": 3, "linear_attn_config": {"full_attn_layers": [3], "kda_layers": [1]}},
        "linear_attn_config.full_attn_layers: and kda_layers must name each of the 3 layers once",
    ),
    ("falcon", {"hidden_dropout": 0.1}, "hidden_dropout: 0.1 is not supported, only 0: Falcon drops other sums"),
    ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn: 2 is not supported, only 1 without new_"),
    ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "parallel_attn: false is not supported"),
    ("gpt_oss", {"hidden_act": "gelu"}, 'hidden_act: "gelu" is not supported, only "silu"'),
]


@pytest.mark.parametrize(("model_type", "config", "said"), REFUSED)
def test_what_no_blueprint_says_is_named(model_type, config, said):
    with pytest.raises(BlueprintError) as caught:
        import_config({"model_type": model_type, **NEEDED.get(model_type, {}), **config})
    assert len(caught.value.problems) == 1, str(caught.value)
    assert re.match(f"<config>: {said}", str(caught.value)), str(caught.value)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_no_family_drops_a_field_that_it_does_not_know(model_type):
    config = {"model_type": model_type, **NEEDED.get(model_type, {}), "number_of_surprises": 3}
    ((path, message),) = problems_of(config)
    assert (path, message) == ("number_of_surprises", "3 is not understood: it may change the architecture")


def test_all_problems_come_at_once_in_the_order_of_the_file():
    text = """{
  "model_type": "llama",
  "hidden_size": -1,
  "rope_scaling": {"type": "linear", "factor": 2,
                   "odd": 1},
  "surprise": [1, 2]
}"""
    with pytest.raises(BlueprintError) as caught:
        read_import(parsed(text.encode(), "config.json"))
    assert str(caught.value).splitlines() == [
        "config.json:3:3: hidden_size: must be a whole number of at least 1, not -1",
        "config.json:5:20: rope_scaling.odd: 1 is not understood: it may change the architecture",
        "config.json:6:3: surprise: [1, 2] is not understood: it may change the architecture",
    ]


@pytest.mark.parametrize(
    ("model_type", "said"),
    [
        ("lama", """model_type: no import for "lama"\n  did you mean 'llama'?\n  known: bert, bloom, """),
        ("mamba2", 'model_type: no import for "mamba2"\n  known: bert, bloom, '),
        (None, "model_type: is missing: it says what the other fields mean\n  known: bert, "),
        (7, "model_type: no import for 7\n"),
    ],
)
def test_an_unknown_model_type_says_what_is_known(model_type, said):
    with pytest.raises(BlueprintError) as caught:
        import_config({"model_type": model_type, "hidden_size": 8})
    assert str(caught.value).startswith(f"<config>: {said}")


def test_the_text_model_of_an_unknown_model_is_pointed_at():
    with pytest.raises(BlueprintError, match="its text_config is a llama, which can be imported by itself"):
        import_config({"model_type": "llava", "text_config": {"model_type": "llama"}})


TEXTS = [
    (b'{"model_type": "llama",}', "config.json:1:24: this is no JSON: "),
    (b"", "config.json:1:1: this is no JSON: Expecting value"),
    (b"[1]", "config.json: a config is a mapping of fields, not a list"),
    (b"\xff\xfe", "config.json: this is no UTF-8 text: byte 0 cannot be read"),
    (b"[" * 100_000, "config.json: this is no config.json: "),
    (b'{"a": ' + b"1" * 5000 + b"}", "config.json: this is no config.json: "),
    (b'{"a": 1,\n "b": {"a": 2},\n "a": 3}', "config.json:3:2: a: is written twice, first in line 1"),
    (b" " * (1 << 22) + b"{}", "config.json: the file is larger than 4 MiB"),
]


@pytest.mark.parametrize(("text", "said"), TEXTS, ids=[said[:40] for _, said in TEXTS])
def test_broken_files_are_named(text, said):
    with pytest.raises(BlueprintError) as caught:
        parsed(text, "config.json")
    assert str(caught.value).startswith(said)


def test_a_byte_order_mark_is_no_problem():
    assert parsed('{"model_type": "llama"}'.encode("utf-8-sig"), "config.json").values == {"model_type": "llama"}


def test_missing_files_are_named(tmp_path):
    with pytest.raises(BlueprintError, match=r"nowhere\.json: no such file"):
        read_config(str(tmp_path / "nowhere.json"))
    with pytest.raises(BlueprintError, match=r"config\.json: no such file\n  the folder '.*' has none"):
        read_config(str(tmp_path))


def test_a_folder_is_its_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    assert read_config(str(tmp_path)).values == {"model_type": "llama"}
