from collections.abc import Callable
from typing import Annotated

from annotated_types import Ge

from explorer import Position
from explorer_attentions.compressed import CompressedAttention
from explorer_attentions.compression import Compressor


def hca(
    dim: int,
    heads: int,
    head_dim: int,
    window: int | None,
    position: Callable[[int], Position],
    dropout: float,
    *,
    ratio: Annotated[int, Ge(1)] | None = 128,
    q_rank: Annotated[int, Ge(1)] | None = None,
    out_groups: Annotated[int, Ge(1)] | None = None,
    out_rank: Annotated[int, Ge(1)] = 1024,
    sinks: bool = True,
) -> CompressedAttention:
    """W_o R^-1 softmax(q k^T / sqrt(head_dim)) k over a window of keys and all compressed ones, one for `ratio` tokens.

    Heavily compressed attention, DeepSeek-AI 2026, arXiv:2606.19348 (DeepSeek-V4), section 2.3.2. One key head, which
    is the value too; q (each head, without a gain) and k are normed, then rotated, and the output is rotated back. An
    entry pools ratio tokens by a softmax for each channel, and is seen as soon as they are all there. V4 rotates the
    last 64 channels, `position: {rope: {dims: 64, at: end, pairing: interleaved}}`, and sees a window of 128.

    Always causal, never across a context, no bias. A mask hides each entry that pools a token which it hides.

    ratio: tokens to an entry; null: the window alone (V4's sliding layers).
    q_rank: width of the latent that q comes from, null: q straight from x.
    out_groups: groups of heads that are taken down to out_rank channels each before W_o; null: W_o on all heads.
    sinks: a learned logit of each head in the denominator of its softmax, at first 0.
    """
    compressor = None if ratio is None else Compressor(dim, head_dim, ratio, position, overlap=False)
    return CompressedAttention(
        dim, heads, head_dim, window, position, dropout,
        compressor=compressor, indexer=None, q_rank=q_rank, out_groups=out_groups, out_rank=out_rank, sinks=sinks,
    )  # fmt: skip
