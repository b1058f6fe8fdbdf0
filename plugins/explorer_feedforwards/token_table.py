import torch
from torch import Tensor, nn

from explorer import UsageError


class TokenTable(nn.Module):
    """The experts of a token by its id alone, table[id], (B, T) -> (B T, top_k).

    Roller et al. 2021, arXiv:2106.04426 (hash layers); DeepSeek-AI 2026 (V4), arXiv:2606.19348, in its first layers.
    The table is a buffer and belongs to the state_dict: trained models ship their own. Here token t gets the experts
    (t top_k + j) mod experts, j < top_k, which are all different and give each expert an equal part of the vocabulary.
    """

    table: Tensor

    def __init__(self, vocab: int, *, experts: int, top_k: int):
        super().__init__()
        if top_k > experts:
            raise ValueError(f"top_k {top_k} must be at most experts {experts}")
        self.register_buffer("table", torch.arange(vocab * top_k).view(vocab, top_k) % experts)

    def forward(self, scores: Tensor, ids: Tensor | None) -> Tensor:
        if ids is None:
            raise UsageError("select token chooses experts by token id: `ids` must be given")
        return self.table.index_select(0, ids.flatten())
