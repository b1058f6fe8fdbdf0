"""Choices that belong to the core: head, layout, initialisation, dropout, embedding.

Written like plugins (the signature is the schema), so that checks, paths, error texts and JSON Schema treat them alike.
What they mean is built by ``explorer.assembly``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Lt

from explorer.registry.kinds import Kind
from explorer.registry.makers import Activation, Norm
from explorer.registry.registry import Component, Origin

Rate = Annotated[float, Ge(0), Lt(1)]
Positive = Annotated[float, Gt(0)]

HEAD = Kind("head", "", (), "")
LAYOUT = Kind("layout", "", (), "")
INIT = Kind("init", "", (), "")
DROPOUT = Kind("dropout", "", (), "")
EMBEDDING = Kind("embedding", "", (), "")
RECORDS = frozenset({DROPOUT.name, EMBEDDING.name})  # written as a bare mapping, without a name


def lm(
    *, bias: bool = False, scale: Positive | Literal["rsqrt_dim"] | None = None, softcap: Positive | None = None
) -> None:
    """Logits over the vocabulary; ``scale`` multiplies the hidden state, ``softcap`` c gives c * tanh(logits / c)."""


def pooler(*, activation: Activation = "tanh") -> None:  # type: ignore[assignment]
    """activation(W h_0 + b) of position 0, (B, dim)."""


def no_head() -> None:
    """Hidden states."""


def sequential() -> None:
    """One residual connection per sublayer."""


def parallel(*, shared_norm: bool = True) -> None:
    """One residual connection per layer: the sublayers' outputs on the same input are added."""


def torch_init() -> None:
    """Each module's own initialisation."""


def normal(*, std: Positive = 0.02, output: Literal["none", "depth"] = "none") -> None:
    """Weights N(0, std), biases 0; ``output: depth`` divides the std of residual outputs by sqrt(2 layers) (GPT-2)."""


def xavier() -> None:
    """Glorot-uniform weights, biases 0."""


def dropout(*, embedding: Rate = 0.0, attention: Rate = 0.0, activation: Rate = 0.0, sublayer: Rate = 0.0) -> None:
    """Dropout rates at the four places."""


def embedding(
    *,
    scale: Positive | Literal["sqrt_dim"] | None = None,
    norm: Norm | Literal[True] | None = None,
    types: Annotated[int, Ge(0), Lt(2**16)] = 0,
) -> None:
    """The input table."""


_CORE = Origin("explorer", "architecture-explorer", "")
_CONSTRUCTORS: tuple[tuple[Kind, Mapping[str, Callable[..., Any]]], ...] = (
    (HEAD, {"lm": lm, "pooler": pooler, "none": no_head}),
    (LAYOUT, {"sequential": sequential, "parallel": parallel}),
    (INIT, {"torch": torch_init, "normal": normal, "xavier": xavier}),
    (DROPOUT, {"dropout": dropout}),
    (EMBEDDING, {"embedding": embedding}),
)

CORE_COMPONENTS: Mapping[str, Mapping[str, Component]] = MappingProxyType(
    {
        kind.name: {name: Component(kind, name, constructor, _CORE) for name, constructor in options.items()}
        for kind, options in _CONSTRUCTORS
    }
)
