"""Every field of the blueprint language: where it stands, what it takes, its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from explorer.registry.parameters import Shape, read_shape
from explorer.registry.values import LARGEST_WIDTH

MODEL, STACK, BLOCK = "model", "stack", "block"
ENCODER, DECODER = "encoder", "decoder"
STACKS = ("", ENCODER, DECODER)
STUDY_FIELDS = ("workloads", "explore", "skip", "match", "baseline")
HEADER_FIELDS = ("name", "requires", "base")  # read once from a file, never changed by a path
PLACEMENTS = ("pre", "post", "sandwich", "res_post", "none")
FINAL_NORMS = Literal["auto", "none", True]
PREFIXES = (ENCODER, DECODER, "blocks")
# What a stack itself takes from its unnamed block, also where no layer is of it: its final norm, the norm and dropout
# of its embedding, the position that is added to the embedding.
READ_BY_STACK = frozenset({"norm", "placement", "position", "dropout"})

Width = Annotated[int, Ge(1), Le(LARGEST_WIDTH)]
Vocab = Annotated[int, Ge(1), Le(2**31 - 1)]
Keys = Annotated[int, Ge(1), Le(2**40)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]


@dataclass(frozen=True)
class Field:
    """One field. ``default`` is written as in a blueprint; MISSING: the field must be written.

    stacks: those that have the field.
    """

    name: str
    level: str
    shape: Shape
    default: Any
    doc: str
    stacks: tuple[str, ...] = STACKS


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


def _leaf(annotation: Any) -> Shape:
    return read_shape(annotation)


def _component(kind: str, leaf: Any = None, nullable: bool = False) -> Shape:
    return Shape(kind=kind, leaf=leaf, nullable=nullable)


FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        field.name: field
        for field in (
            Field("dim", MODEL, _leaf(Width), MISSING, "width of the residual stream"),
            Field("vocab", MODEL, _leaf(Vocab | None), None, "tokens; with it embedding and head are built"),
            Field("embedding", MODEL, _component("embedding"), None, "the input table"),
            Field("head", MODEL, _component("head"), "lm", "what reads the last hidden state"),
            Field("tie_embeddings", MODEL, _leaf(bool), False, "the head uses the input table"),
            Field("init", MODEL, _component("init"), "torch", "initialisation of weights"),
            Field("seed", MODEL, _leaf(Seed), 0, "seed of the initialisation"),
            Field("layers", STACK, Shape(), 1, "int, an item, or a list of items"),
            Field("residual", STACK, _component("residual"), "add", "one per stack"),
            Field("final_norm", STACK, _component("norm", FINAL_NORMS), "auto", "the norm after the stack"),
            Field("heads", BLOCK, _leaf(Width), MISSING, "query heads"),
            Field("head_dim", BLOCK, _leaf(Width | None), None, "width of a head; null: dim / heads"),
            Field("norm", BLOCK, _component("norm"), "rmsnorm", "norm of the sublayers"),
            Field("placement", BLOCK, _leaf(Literal[PLACEMENTS]), "pre", "where norms sit around a sublayer"),
            Field("layout", BLOCK, _component("layout"), "sequential", "sequential or parallel sublayers"),
            Field("position", BLOCK, _component("position"), "rope", "position encoding"),
            Field("attention", BLOCK, _component("attention"), "mha", "self-attention"),
            Field(
                "cross_attention",
                BLOCK,
                _component("attention", nullable=True),
                None,
                "of a decoder; null: as attention",
                stacks=("", DECODER),
            ),
            Field("feedforward", BLOCK, _component("feedforward"), "dense", "feed-forward network"),
            Field("activation", BLOCK, _component("activation"), "swiglu", "activation of the feed-forward"),
            Field("bias", BLOCK, _leaf(bool), False, "bias of linear maps"),
            Field("causal", BLOCK, _leaf(bool), True, "whether a query sees only keys up to its own place"),
            Field("window", BLOCK, _leaf(Keys | None), None, "keys a query sees, its own included"),
            Field("dropout", BLOCK, _component("dropout"), None, "dropout rates"),
        )
    }
)


def at_level(level: str) -> tuple[Field, ...]:
    return tuple(field for field in FIELDS.values() if field.level == level)
