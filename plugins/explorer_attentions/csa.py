from collections.abc import Callable
from typing import Annotated

from annotated_types import Ge

from explorer import Position
from explorer_attentions.compressed import CompressedAttention
from explorer_attentions.compression import Compressor
from explorer_attentions.indexer import Indexer


def csa(
    dim: int,
    heads: int,
    head_dim: int,
    window: int | None,
    position: Callable[[int], Position],
    dropout: float,
    *,
    ratio: Annotated[int, Ge(1)] | None = 4,
    index_heads: Annotated[int, Ge(1)] = 64,
    index_dim: Annotated[int, Ge(1)] = 128,
    index_top_k: Annotated[int, Ge(1)] = 512,
    q_rank: Annotated[int, Ge(1)] | None = None,
    out_groups: Annotated[int, Ge(1)] | None = None,
    out_rank: Annotated[int, Ge(1)] = 1024,
    sinks: bool = True,
) -> CompressedAttention:
    """W_o R^-1 softmax(q k^T / sqrt(head_dim)) k over a window of keys and the top_k of compressed ones, chosen for q.

    Compressed sparse attention, DeepSeek-AI 2026, arXiv:2606.19348 (DeepSeek-V4), section 2.3.1. One key head, which is
    the value too; normed, rotated and rotated back as in `hca`, which tells V4's `position` and window. An entry pools
    2 ratio tokens, one every ratio tokens. An indexer, which the loss of the model does not train, scores all complete
    entries; of equal scores the newest are chosen. Always causal, no context, no bias. A mask hides an entry that pools
    a token which it hides. One query reads what it chose; several read all, and only the exact count leaves that out.

    ratio: tokens to an entry; null: the window alone (V4's sliding layers).
    index_heads, index_dim, index_top_k: queries of the indexer, their width, entries that a query attends to.
    q_rank: width of the latent that q comes from, null: q straight from x.
    out_groups: groups of heads that are taken down to out_rank channels each before W_o; null: W_o on all heads.
    sinks: a learned logit of each head in the denominator of its softmax, at first 0.
    """
    compressor, indexer = None, None
    if ratio is not None:
        compressor = Compressor(dim, head_dim, ratio, position, overlap=True)
        indexer = Indexer(dim, q_rank or dim, position, index_heads, index_dim, ratio, index_top_k)
    return CompressedAttention(
        dim, heads, head_dim, window, position, dropout,
        compressor=compressor, indexer=indexer, q_rank=q_rank, out_groups=out_groups, out_rank=out_rank, sinks=sinks,
    )  # fmt: skip
