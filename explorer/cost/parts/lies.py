"""Where new tensors lie: in the storage of another one, or in one that was made with them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from torch import Tensor

from explorer.cost.parts.storages import address


@dataclass(frozen=True)
class Lies:
    """Where the new tensors of a call lie.

    at: for each the place of an input whose storage it shares, or behind the inputs the number of a new storage; None:
    it is a weight, or lies in the cache. sizes: of the new storages, in bytes.
    """

    at: tuple[int | None, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of(fresh: Sequence[Tensor], inputs: Sequence[Tensor], there: Set[int]) -> Lies:
        """there: addresses of storages that are neither new nor an input's."""
        places = {address(tensor): at for at, tensor in reversed(list(enumerate(inputs)))}
        sizes: list[int] = []
        at: list[int | None] = []
        for tensor in fresh:
            here = address(tensor)
            if here in there and here not in places:
                at.append(None)
                continue
            if here not in places:
                places[here] = len(inputs) + len(sizes)
                sizes.append(tensor.untyped_storage().nbytes())
            at.append(places[here])
        return Lies(tuple(at), tuple(sizes))
