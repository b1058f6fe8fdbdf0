"""Random configs of transformers for every family that is imported: few, small, and of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import transformers
from hypothesis import strategies as st

VOCAB = st.integers(5, 40)
LAYERS = st.integers(1, 5)
WIDTH = st.sampled_from([8, 12, 20])
FLAG = st.booleans()
Config = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A class of transformers and a strategy for the fields of its config."""

    architecture: str
    fields: st.SearchStrategy[Config]

    def config(self, fields: Mapping[str, Any]) -> transformers.PreTrainedConfig:
        return getattr(transformers, self.architecture).config_class(**fields)

    @property
    def model_type(self) -> str:
        return getattr(transformers, self.architecture).config_class.model_type


@st.composite
def heads(draw: Callable[..., Any], *, apart: bool = False, grouped: bool = True) -> Config:
    """hidden_size, heads, kv heads that divide them; apart: a head_dim that need not be hidden_size / heads."""
    count, width = draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from([4, 6, 8]))
    found = {"hidden_size": count * width, "num_attention_heads": count}
    if grouped:
        found["num_key_value_heads"] = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    if apart:
        found["head_dim"] = draw(st.sampled_from([4, 6, 10]))
    return found


@st.composite
def decoder(draw: Callable[..., Any], *, apart: bool = False, grouped: bool = True, **more: Any) -> Config:
    """A decoder's sizes and `more`, {field: strategy}; a function of what is drawn so far makes a strategy."""
    found = {
        **draw(heads(apart=apart, grouped=grouped)),
        "intermediate_size": draw(WIDTH),
        "num_hidden_layers": draw(LAYERS),
        "vocab_size": draw(VOCAB),
        "tie_word_embeddings": draw(FLAG),
    }
    for name, strategy in more.items():
        value = draw(strategy(found) if callable(strategy) else strategy)
        found.update(value if isinstance(value, dict) and name.startswith("_") else {name: value})
    return found


def types_of(*names: str) -> Callable[[Config], st.SearchStrategy[list[str]]]:
    """layer_types, of which the last is there at least once where there are layers enough."""
    return lambda found: st.lists(
        st.sampled_from(names), min_size=found["num_hidden_layers"], max_size=found["num_hidden_layers"]
    )


def renamed(names: Mapping[str, str]) -> Callable[[Config], Config]:
    return lambda found: {names.get(name, name): value for name, value in found.items()}


def experts(count: str) -> dict[str, Any]:
    """`count`, the name of the number of experts, and how many of them a token sees."""
    return {count: st.integers(4, 6), "num_experts_per_tok": st.integers(1, 3)}


FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
GPT = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
WINDOW = st.none() | st.integers(2, 9)
SOME_LAYERS = {"decoder_sparse_step": st.integers(1, 2), "mlp_only_layers": st.just([]) | st.just([0])}
MLA: dict[str, Any] = {
    "q_lora_rank": st.none() | st.just(6),
    "kv_lora_rank": st.sampled_from([5, 10]),
    "qk_rope_head_dim": st.sampled_from([2, 4]),
    "qk_nope_head_dim": st.sampled_from([4, 6]),
    "v_head_dim": st.sampled_from([4, 6]),
    "moe_intermediate_size": WIDTH,
    "n_shared_experts": st.integers(1, 2),
    "first_k_dense_replace": st.integers(0, 3),
    "num_key_value_heads": lambda found: st.just(found["num_attention_heads"]),
    "attention_bias": lambda found: FLAG if found["q_lora_rank"] else st.just(False),
}
GROUPS: dict[str, Any] = {
    "n_routed_experts": st.sampled_from([4, 8]),
    "num_experts_per_tok": st.integers(1, 2),
    "n_group": st.sampled_from([1, 2]),
    "topk_group": st.just(1),
}


def gpt(found: Config) -> Config:
    """Without the feed-forward width for one in two."""
    width = found.pop("intermediate_size")
    return {**renamed(GPT)(found), **({"n_inner": width} if width != 8 else {})}


def t5(found: Config) -> Config:
    names = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "intermediate_size": "d_ff",
        "head_dim": "d_kv",
    }
    return renamed(names)(found)


def falcon(found: Config) -> Config:
    """New decoders have their own number of kv heads; others side by side share one norm."""
    found = renamed({"intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"})(found)
    if found["new_decoder_architecture"]:
        found.update(parallel_attn=True)
    else:
        found.update(num_ln_in_parallel_attn=None)
    return found if found["new_decoder_architecture"] else {k: v for k, v in found.items() if k != "num_kv_heads"}


def gemma3(found: Config) -> Config:
    return {"text_config": found, "vision_config": {"hidden_size": 8, "num_hidden_layers": 1}}


def without(*names: str) -> Callable[[Config], Config]:
    return lambda found: {name: value for name, value in found.items() if name not in names}


def rotated_share(found: Config) -> st.SearchStrategy[float]:
    """All channels or the first pair."""
    return st.sampled_from([1.0, 2 * found["num_attention_heads"] / found["hidden_size"]])


GEMMA = {"query_pre_attn_scalar": st.sampled_from([4, 10]), "attention_bias": FLAG}
QWEN_WINDOWS = {"use_sliding_window": FLAG, "sliding_window": st.integers(2, 9), "max_window_layers": st.integers(0, 5)}
V4_ATTENTIONS = (SLIDING, "compressed_sparse_attention", "heavily_compressed_attention")

CASES: Mapping[str, Case] = {
    "bert": Case(
        "BertModel",
        decoder(grouped=False, max_position_embeddings=st.integers(4, 9), type_vocab_size=st.integers(1, 3)),
    ),
    "gpt2": Case("GPT2LMHeadModel", decoder(grouped=False, n_positions=st.integers(4, 9)).map(gpt)),
    "gptj": Case("GPTJForCausalLM", decoder(grouped=False, rotary_dim=st.sampled_from([2, 4])).map(gpt)),
    "gpt_neox": Case(
        "GPTNeoXForCausalLM",
        decoder(grouped=False, use_parallel_residual=FLAG, attention_bias=FLAG, rotary_pct=rotated_share),
    ),
    "t5": Case(
        "T5ForConditionalGeneration",
        decoder(
            grouped=False,
            apart=True,
            num_decoder_layers=st.none() | LAYERS,
            feed_forward_proj=st.sampled_from(["relu", "gated-gelu", "gated-silu"]),
            relative_attention_num_buckets=st.sampled_from([4, 8]),
        ).map(t5),
    ),
    "llama": Case("LlamaForCausalLM", decoder(apart=True, attention_bias=FLAG, mlp_bias=FLAG)),
    "mistral": Case("MistralForCausalLM", decoder(apart=True, sliding_window=WINDOW)),
    "mixtral": Case("MixtralForCausalLM", decoder(sliding_window=WINDOW, **experts("num_local_experts"))),
    "qwen2": Case("Qwen2ForCausalLM", decoder(**QWEN_WINDOWS)),
    "qwen3": Case("Qwen3ForCausalLM", decoder(apart=True, attention_bias=FLAG, **QWEN_WINDOWS)),
    "qwen3_moe": Case(
        "Qwen3MoeForCausalLM",
        decoder(
            apart=True,
            attention_bias=FLAG,
            moe_intermediate_size=WIDTH,
            norm_topk_prob=FLAG,
            **experts("num_experts"),
            **SOME_LAYERS,
        ),
    ),
    "qwen3_next": Case(
        "Qwen3NextForCausalLM",
        decoder(
            layer_types=types_of(LINEAR, FULL),
            head_dim=st.just(8),
            attention_bias=FLAG,
            linear_num_key_heads=st.integers(1, 2),
            linear_num_value_heads=st.sampled_from([2, 4]),
            linear_key_head_dim=st.sampled_from([4, 6]),
            linear_value_head_dim=st.sampled_from([4, 6]),
            linear_conv_kernel_dim=st.integers(2, 4),
            moe_intermediate_size=WIDTH,
            shared_expert_intermediate_size=WIDTH,
            **experts("num_experts"),
            **SOME_LAYERS,
        ),
    ),
    "gemma2": Case("Gemma2ForCausalLM", decoder(apart=True, **GEMMA)),
    "gemma3_text": Case("Gemma3ForCausalLM", decoder(apart=True, layer_types=types_of(SLIDING, FULL), **GEMMA)),
    "olmo2": Case("Olmo2ForCausalLM", decoder(attention_bias=FLAG)),
    "phi3": Case("Phi3ForCausalLM", decoder(sliding_window=WINDOW, pad_token_id=st.just(0))),
    "cohere": Case("CohereForCausalLM", decoder(attention_bias=FLAG, use_qk_norm=FLAG)),
    "deepseek_v2": Case(
        "DeepseekV2ForCausalLM",
        decoder(topk_method=st.sampled_from(["greedy", "group_limited_greedy"]), **GROUPS, **MLA),
    ),
    "deepseek_v3": Case("DeepseekV3ForCausalLM", decoder(norm_topk_prob=FLAG, rope_interleave=FLAG, **GROUPS, **MLA)),
    "deepseek_v4": Case(
        "DeepseekV4ForCausalLM",
        decoder(
            layer_types=types_of(*V4_ATTENTIONS),
            mlp_layer_types=types_of("hash_moe", "moe"),
            num_key_value_heads=st.just(1),
            head_dim=st.just(8),
            partial_rotary_factor=st.just(0.5),
            q_lora_rank=st.just(6),
            o_groups=st.just(1),
            o_lora_rank=st.sampled_from([4, 6]),
            index_n_heads=st.integers(1, 2),
            index_head_dim=st.just(6),
            hc_mult=st.integers(2, 3),
            moe_intermediate_size=WIDTH,
            **experts("n_routed_experts"),
        ).map(without("intermediate_size")),
    ),
    "bloom": Case("BloomForCausalLM", decoder(grouped=False).map(without("intermediate_size"))),
    "falcon": Case(
        "FalconForCausalLM",
        decoder(
            new_decoder_architecture=FLAG,
            multi_query=FLAG,
            parallel_attn=FLAG,
            num_ln_in_parallel_attn=st.sampled_from([None, 1, 2]),
            bias=FLAG,
            alibi=FLAG,
        ).map(falcon),
    ),
    "gpt_oss": Case("GptOssForCausalLM", decoder(apart=True, attention_bias=FLAG, **experts("num_local_experts"))),
    "kimi_linear": Case(
        "KimiLinearForCausalLM",
        decoder(
            layer_types=types_of(LINEAR, FULL),
            mlp_layer_types=types_of("dense", "sparse"),
            linear_head_dim=st.sampled_from([4, 6]),
            linear_num_heads=st.integers(1, 3),
            pad_token_id=st.just(0),
            tie_word_embeddings=st.just(False),  # their class never ties
            linear_conv_kernel_dim=st.integers(2, 4),
            **experts("num_local_experts"),
            **{name: strategy for name, strategy in MLA.items() if not name.startswith(("first_k", "attention"))},
        ),
    ),
}
"""By model type; `gemma3` holds a `gemma3_text`, `kimi_k2` is a `deepseek_v3`."""
