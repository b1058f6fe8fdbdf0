from collections.abc import Callable
from typing import Annotated, Literal

from annotated_types import Gt

from explorer import Norm, Position
from explorer_attentions.gqa import GroupedQueryAttention


def mha(
    dim: int,
    heads: int,
    head_dim: int,
    causal: bool,
    window: int | None,
    bias: bool | Literal["qkv", "out"],
    position: Callable[[int], Position],
    dropout: float,
    *,
    scale: Annotated[float, Gt(0)] | Literal["learned"] | None = None,
    softcap: Annotated[float, Gt(0)] | None = None,
    sinks: bool = False,
    gate: bool = False,
    qk_norm: Norm | None = None,
    qk_norm_over: Literal["head", "each_head", "all"] = "head",
    qk_norm_after_position: bool = False,
) -> GroupedQueryAttention:
    """W_o softmax(cap(scale q k^T)) v with a key and value head for each query head.

    Vaswani et al. 2017, arXiv:1706.03762. Grouped-query attention with kv_heads = heads: one fused projection, its rows
    in the layout (3, heads, head_dim), after those of a gate.

    scale: of the scores, null: 1 / sqrt(head_dim). `learned`: one parameter, which starts at sqrt(head_dim) and wants
        queries and keys of length 1 (qk_norm l2norm; Henry et al. 2020, arXiv:2010.04245).
    softcap: c tanh(s / c) of the scaled scores (Gemma 2).
    sinks: a learned logit of each head in the denominator of its softmax, at first 0 (gpt-oss).
    gate: sigmoid(W_g x) on each channel of the heads' outputs, before W_o (Qiu et al. 2025, arXiv:2505.06708).
    qk_norm: on q and k; the cache holds keys as normed and rotated.
    qk_norm_over: each head with one weight for all (Qwen 3), each head with a weight of its own (Cohere; a kernel a
        head), or all heads at once (OLMo 2).
    qk_norm_after_position: norms the rotated q and k (Llama 4); a gain then acts on other channels.
    """
    return GroupedQueryAttention(
        dim, heads, head_dim, causal, window, bias, position, dropout,
        kv_heads=heads, scale=scale, softcap=softcap, sinks=sinks, gate=gate,
        qk_norm=qk_norm, qk_norm_over=qk_norm_over, qk_norm_after_position=qk_norm_after_position,
    )  # fmt: skip
