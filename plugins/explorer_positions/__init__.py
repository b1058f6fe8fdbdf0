"""Positions: how a block learns where a token stands. One instance serves a whole stack."""

from collections.abc import Callable, Mapping

from explorer import Position, hookimpl
from explorer_positions.alibi import ALiBi
from explorer_positions.learned import Learned
from explorer_positions.none import NoPosition
from explorer_positions.rope import RoPE
from explorer_positions.sinusoidal import Sinusoidal
from explorer_positions.t5_bias import T5Bias


@hookimpl
def register_positions() -> Mapping[str, Callable[..., Position]]:
    return {
        "alibi": ALiBi,
        "learned": Learned,
        "none": NoPosition,
        "rope": RoPE,
        "sinusoidal": Sinusoidal,
        "t5_bias": T5Bias,
    }
