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
    scale: Annotated[float, Gt(0)] | None = None,
    softcap: Annotated[float, Gt(0)] | None = None,
    qk_norm: Norm | None = None,
    qk_norm_over: Literal["head", "all"] = "head",
) -> GroupedQueryAttention:
    """W_o softmax(cap(scale q k^T)) v with a key and value head for each query head.

    Vaswani et al. 2017, arXiv:1706.03762. Grouped-query attention with kv_heads = heads: one fused projection, its rows
    in the layout (3, heads, head_dim).

    scale: of the scores, 1 / sqrt(head_dim) when off. softcap: c tanh(s / c) of the scaled scores (Gemma 2).
    qk_norm: on q and k before the rotation; over each head with one weight for all, or over all heads at once (OLMo 2).
    """
    return GroupedQueryAttention(
        dim, heads, head_dim, causal, window, bias, position, dropout,
        kv_heads=heads, scale=scale, softcap=softcap, qk_norm=qk_norm, qk_norm_over=qk_norm_over,
    )  # fmt: skip
