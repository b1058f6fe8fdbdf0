"""Feed-forward networks: the sublayer that looks at one position only, (B, T, dim) -> (B, T, dim)."""

from collections.abc import Callable, Mapping

from torch import nn

from explorer import hookimpl
from explorer_feedforwards.dense import Dense
from explorer_feedforwards.latent_moe import latent_moe
from explorer_feedforwards.moe import moe


@hookimpl
def register_feedforwards() -> Mapping[str, Callable[..., nn.Module] | None]:
    return {"dense": Dense, "latent_moe": latent_moe, "moe": moe, "none": None}
