"""What is imported says what transformers says: whole toy models with copied weights, in prefill and cached decode.

The parity suite does this for blueprints written by hand; here they come from `config.to_dict()`. So a wrong epsilon,
base of a rotation, window or cap shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from explorer.huggingface.families import FAMILIES as IMPORTED
from explorer.huggingface.import_config import import_config
from tests.parity.families import FAMILIES
from tests.parity.harness import VOCAB, Family, Pair

TOLERANCE = 1e-5  # of the largest answer, as in the parity suite
EPS = 1e-3  # large enough that one in another place shows
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": VOCAB}
LLAMA = {**SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "rms_norm_eps": EPS}
ROPE = {"rope_theta": 1000.0, "rope_type": "default"}


def family(name: str, architecture: str, **config: Any) -> Family:
    """One that the parity suite has not; its blueprint is imported."""
    return Family(name, {}, architecture, config)


def with_sdpa(model: torch.nn.Module) -> None:
    """The eager attention of Falcon adds ALiBi to its scores, and once more with the mask."""
    model.config._attn_implementation = "sdpa"  # its own setter leaves the modules as they are


MORE = (
    family("llama-biases", "LlamaForCausalLM", **LLAMA, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    family("llama-feedforward-biases", "LlamaForCausalLM", **LLAMA, mlp_bias=True, rope_parameters=ROPE),
    family(
        "qwen2-windows", "Qwen2ForCausalLM", **LLAMA, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    family(
        "qwen3-moe-dense-layers",
        "Qwen3MoeForCausalLM",
        **LLAMA,
        mlp_only_layers=[0],
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        use_sliding_window=True,
        sliding_window=5,
    ),
    family(
        "phi-3-partial-rotation",
        "Phi3ForCausalLM",
        **LLAMA,
        pad_token_id=None,
        rope_parameters={**ROPE, "partial_rotary_factor": 0.5},
    ),
    family(
        "gpt-neox-in-turn",
        "GPTNeoXForCausalLM",
        **SIZES,
        intermediate_size=48,
        layer_norm_eps=EPS,
        use_parallel_residual=False,
        attention_bias=False,
    ),
    family(
        "gpt2-unscaled", "GPT2LMHeadModel", n_embd=32, n_head=4, n_layer=2, n_positions=32, scale_attn_weights=False
    ),
    replace(
        family(
            "falcon-rw",
            "FalconForCausalLM",
            **SIZES,
            ffn_hidden_size=48,
            layer_norm_epsilon=EPS,
            alibi=True,
            bias=True,
            multi_query=False,
            parallel_attn=False,
        ),
        prepare=with_sdpa,
    ),
    family(
        "falcon-11b",
        "FalconForCausalLM",
        **SIZES,
        layer_norm_epsilon=EPS,
        num_kv_heads=2,
        new_decoder_architecture=True,
        num_ln_in_parallel_attn=1,
        rope_parameters=ROPE,
    ),
)


def imported(given: Family) -> Family:
    made = getattr(transformers, given.architecture)
    config = made.config_class(**{"vocab_size": VOCAB, **given.config})
    own = {name: value for name, value in given.config.items() if name != "vocab_size"}
    return replace(given, config=own, blueprint=import_config(config.to_dict()))


def can_import(given: Family) -> bool:
    # BERT is imported with its pooler.
    return getattr(transformers, given.architecture).config_class.model_type in IMPORTED and given.name != "bert"


@pytest.fixture(autouse=True)
def _silent():
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("given", [*filter(can_import, FAMILIES), *MORE], ids=str)
def test_an_imported_model_says_what_theirs_says(given):
    pair = Pair(imported(given))
    answers = [pair.prefill(), *([pair.decode()] if given.task.decodes else [])]
    for theirs, ours in answers:
        torch.testing.assert_close(ours / theirs.abs().max(), theirs / theirs.abs().max(), rtol=0, atol=TOLERANCE)
