from typing import Annotated

from annotated_types import Ge
from torch import Tensor, nn

from explorer import Position


class Learned(Position):
    """x + table[position]: one learned vector a position. Gehring et al. 2017, arXiv:1705.03122 (BERT, GPT-2).

    max_tokens: rows of the table; a longer sequence is refused with a ValueError.
    """

    def __init__(self, dim: int, *, max_tokens: Annotated[int, Ge(1)] = 2048):
        super().__init__()
        self.max_tokens = max_tokens
        self.table = nn.Embedding(max_tokens, dim)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        # The length only: reading `positions` would stall a GPU at every step. The model checks the place of the last.
        if positions.shape[-1] > self.table.num_embeddings:
            raise ValueError(
                f"{positions.shape[-1]} tokens are more than the learned table holds (max_tokens {self.max_tokens})"
            )
        return x + self.table(positions)
