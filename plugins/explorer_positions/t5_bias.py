from collections.abc import Callable
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from explorer import Position
from explorer_positions.distances import distances, laid_out


class T5Bias(Position):
    """table[bucket(j - i), h] added to the scores of query i, key j and head h. Raffel et al. 2019, arXiv:1910.10683.

    Half of the buckets hold one distance each, the others grow logarithmically up to max_distance; the last holds all
    beyond. Causal: earlier keys only; else half of the buckets are for later ones. One table serves the whole stack.
    T5 itself leaves the scores unscaled: set `scale: 1` on its attention.

    buckets: rows of the table. max_distance: where the last bucket starts at the latest.
    """

    starts: Tensor

    def __init__(
        self,
        heads: int,
        causal: bool,
        *,
        buckets: Annotated[int, Ge(2), Le(1024)] = 32,
        max_distance: Annotated[int, Ge(2), Le(2**24)] = 128,
    ):
        super().__init__()
        side = buckets if causal else buckets // 2
        if not causal and (buckets < 4 or buckets % 2):
            raise ValueError(f"buckets {buckets} must be even and at least 4 where later tokens are seen too")
        if max_distance <= side // 2:
            raise ValueError(f"max_distance {max_distance} must be above the {side // 2} distances with a bucket each")
        self.side, self.max_distance, self.causal = side, max_distance, causal
        self.table = nn.Embedding(buckets, heads)
        self.register_buffer("starts", torch.tensor(_starts(side, max_distance)), persistent=False)

    def bias(self, T: int, S: int, offset: int) -> Tensor:
        distance = distances(T, S, self.starts.device)
        far = -distance.clamp(max=0) if self.causal else distance.abs()
        bucket = torch.bucketize(far, self.starts, right=True)
        bucket = bucket if self.causal else bucket + self.side * (distance > 0)
        return laid_out(self.table(bucket).t(), T, S)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Made anew: fn may have allocated them without values (to_empty from meta).
        super()._apply(fn, recurse)
        self.starts = torch.tensor(_starts(self.side, self.max_distance), device=self.starts.device)
        return self


def _starts(side: int, max_distance: int) -> list[int]:
    """The least distance in each of `side` buckets but the first, which starts at 0."""
    single = side // 2
    grown = side - single
    return [*range(1, single + 1), *(_grown_start(single, k, grown, max_distance) for k in range(1, grown))]


def _grown_start(single: int, k: int, grown: int, max_distance: int) -> int:
    """The least d with log(d / single) / log(max_distance / single) >= k / grown, in whole numbers.

    A logarithm may miss a border such as d = 2 single by its last bit, on one device and not on another.
    """
    least = max_distance**k * single ** (grown - k)
    d = round(single * (max_distance / single) ** (k / grown))
    while d**grown < least:
        d += 1
    while (d - 1) ** grown >= least:
        d -= 1
    return d
