"""Where in a model a component stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from explorer.errors import RefusedError

_DEPTHS = frozenset({"layers", "encoder_layers", "decoder_layers"})


@dataclass(frozen=True)
class Site:
    """The place of one residual connection, or of the sublayer inside it.

    index: number of the site in its stack, from 0; ``index == total`` is the end of the stack (``leave``).
    sublayer, sublayers: index of the site in its layer, and how many the layer has.
    layer: index of the layer in its stack. layers: layers of the stack.
    encoder_layers, decoder_layers: layers of either stack, 0 where there is none (a single stack counts as a decoder).

    A blueprint that does not write `layers` has no depths: None is put in, and reading one raises RefusedError.
    """

    index: int
    total: int
    sublayer: int
    sublayers: int
    layer: int
    layers: int = field(compare=False, repr=False)
    stack: Literal["encoder", "decoder"] = "decoder"
    encoder_layers: int = field(default=0, compare=False, repr=False)
    decoder_layers: int = field(default=0, compare=False, repr=False)

    @property
    def end(self) -> bool:
        """Whether this is the one more residual whose ``leave`` closes the stack."""
        return self.index == self.total

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        # Layers default to 1: a depth-dependent component would silently be built for a one-layer model.
        if value is None and name in _DEPTHS:
            raise RefusedError("it depends on the depth of the model: write `layers`")
        return value
