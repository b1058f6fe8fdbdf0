"""What a block is run on: phase, batch, tokens, context, dtype, and what training holds and runs again."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from explorer.blueprint.reading import BAD, Reader, offers_none
from explorer.blueprint.tree import Entry, MappingNode, Node, SequenceNode, child, describe
from explorer.errors import UsageError, did_you_mean
from explorer.registry.parameters import Shape, read_shape

DTYPE_BYTES: Mapping[str, int] = MappingProxyType({"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2})
STORED_BYTES: Mapping[str, int] = MappingProxyType({**DTYPE_BYTES, "float8_e4m3fn": 1, "float8_e5m2": 1})
DEFAULT_TOKENS = 2048
MOST_WORKLOADS = 1000  # each is counted for every row of a study

Phase = Literal["prefill", "decode", "train"]
Optimizer = Literal["adamw", "adamw_bf16", "none"]
Recompute = Literal["none", "selective", "full"]
Count = Annotated[int, Ge(1), Le(2**31 - 1)]


@dataclass(frozen=True)
class Workload:
    """One workload.

    tokens: new positions. context: keys the last of them may see, itself included (context - tokens are cached).
    source: tokens of the encoder. Where a blueprint leaves one out it is None until ``settled``.

    Of a train workload alone, and None otherwise:
    optimizer: what it keeps of each weight. adamw: two moments in float32, and a float32 copy of a narrower weight;
    adamw_bf16: two moments in the weight's own dtype.
    recompute: what a layer runs again in backward. selective: all but matrix products and attention in one kernel.
    """

    phase: Phase = "prefill"
    batch: int = 1
    tokens: int | None = None
    context: int | None = None
    source: int | None = None
    dtype: str = "bfloat16"
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    optimizer: Optimizer | None = None
    recompute: Recompute | None = None

    def settled(
        self,
        longest: int | None = None,
        encoder: bool = False,
        *,
        longest_source: int | None = None,
        default: int = DEFAULT_TOKENS,
    ) -> Workload:
        """The workload with every default filled in.

        longest, longest_source: what the learned position tables of the stack and of the encoder hold. default: tokens
        where none are written; all rows of a study share it, so that they can be compared.

        Raises: UsageError where lengths contradict each other, a table is too short for what was written, or what
        belongs to training is written for another phase.
        """
        full = self._lengths(min(default, longest or default))
        source = None
        if encoder:
            length = full.context if self.phase == "decode" else full.tokens
            source = self.source or min(length or default, longest_source or length or default)
        context = "tokens" if self.context is None else "context"
        for name, length, table in ((context, full.context, longest), ("source", source, longest_source)):
            if table is not None and (length or 0) > table:
                raise UsageError(f"workload: {name} {length} is longer than the learned position table of {table}")
        return replace(
            full._training(),
            source=source,
            weight_dtype=self.weight_dtype or self.dtype,
            kv_dtype=self.kv_dtype or self.dtype,
        )

    def _training(self) -> Workload:
        if self.phase == "train":
            return replace(self, optimizer=self.optimizer or "adamw", recompute=self.recompute or "none")
        for name in ("optimizer", "recompute"):
            if getattr(self, name) is not None:
                raise UsageError(f"workload: {name} {getattr(self, name)} belongs to phase train, not to {self.phase}")
        return self

    def _lengths(self, default: int) -> Workload:
        if self.phase == "decode" and self.context is None:
            raise UsageError("workload: decode needs `context`, the number of keys that the new token may see")
        # A context below the default number of new tokens can only mean a shorter prompt.
        tokens = self.tokens or (1 if self.phase == "decode" else min(default, self.context or default))
        context = self.context or tokens
        if context < tokens:
            raise UsageError(f"workload: context {context} is shorter than the {tokens} new tokens it includes")
        if self.phase == "train" and context != tokens:
            raise UsageError(f"workload: train has no cache, so context {context} must equal tokens {tokens}")
        return replace(self, tokens=tokens, context=context)

    def of_source(self) -> Workload:
        """The workload as the encoder sees it: its tokens are the source's."""
        return replace(self, tokens=self.source, context=self.source)

    @property
    def source_is_cached(self) -> bool:
        """Whether the encoder does not run: the cache already holds what the decoder reads of the source."""
        return self.phase == "decode" or (self.context or 0) > (self.tokens or 0)

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of a result; `source` only with an encoder, `optimizer` and `recompute` only in training."""
        return {key: value for key, value in vars(self).items() if value is not None or key not in _SOMETIMES}

    def written(self) -> dict[str, Any]:
        """As a blueprint writes it: what was left out stays out."""
        return {key: value for key, value in vars(self).items() if value is not None}

    @property
    def label(self) -> str:
        """``prefill, batch 1, 2048 tokens, bfloat16``."""
        lengths = [f"{self.tokens} tokens"] if self.phase != "decode" else [f"context {self.context}"]
        if self.phase != "decode" and self.context != self.tokens:
            lengths.append(f"context {self.context}")
        if self.source is not None:
            lengths.append(f"source {self.source}")
        words = training_words(self.optimizer, self.recompute)
        return ", ".join([self.phase, f"batch {self.batch}", *lengths, self.dtype, *words])


def training_words(optimizer: str | None, recompute: str | None) -> Iterator[str]:
    """What training does otherwise than by default."""
    if optimizer not in (None, "adamw"):
        yield f"optimizer {optimizer}"
    if recompute not in (None, "none"):
        yield f"{recompute} recompute"


_SOMETIMES = frozenset({"source", "optimizer", "recompute"})
_STORED = Literal["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"] | None
_SHAPES = {
    "phase": read_shape(Phase),
    "batch": read_shape(Count),
    "tokens": read_shape(Count),
    "context": read_shape(Count),
    "source": read_shape(Count),
    "dtype": read_shape(Literal["float64", "float32", "bfloat16", "float16"]),
    "weight_dtype": read_shape(_STORED),
    "kv_dtype": read_shape(_STORED),
    "optimizer": read_shape(Optimizer),
    "recompute": read_shape(Recompute),
}


def read_workloads(node: Node, reader: Reader, path: str = "workloads", encoder: bool = True) -> tuple[Workload, ...]:
    """The workloads a list of mappings writes; a list as a value multiplies.

    encoder: whether the model has one, or may have; without it no `source` can be written.
    """
    if isinstance(node, MappingNode):
        node = SequenceNode((node,), node.where)
    if not isinstance(node, SequenceNode) or not node.items:
        found = "an empty one" if isinstance(node, SequenceNode) else describe(node)
        reader.problem(node.where, path, f"must be a list of workloads, not {found}")
        return ()
    workloads: dict[Workload, None] = {}
    for index, item in enumerate(node.items):
        for workload in _read_one(item, reader, child(path, index), encoder):
            if workload in workloads:
                reader.problem(item.where, child(path, index), f"the same workload stands twice: {workload.written()}")
            workloads[workload] = None
    return tuple(workloads)


def _read_one(node: Node, reader: Reader, path: str, encoder: bool) -> Iterator[Workload]:
    if not isinstance(node, MappingNode):
        keys = f"keys: {', '.join(_SHAPES)}"
        reader.problem(node.where, path, f"a workload is a mapping, not {describe(node)}", [keys])
        return
    choices = {entry.key: _choices(entry, reader, child(path, entry.key), encoder) for entry in node.entries}
    if any(value is BAD for values in choices.values() for value in values):
        return
    product = math.prod(map(len, choices.values()))
    if product > MOST_WORKLOADS:
        reader.problem(node.where, path, f"{product:,} workloads are more than {MOST_WORKLOADS:,}: shorten a list")
        return
    for values in itertools.product(*choices.values()):
        yield _checked(Workload(**dict(zip(choices, values, strict=True))), node, reader, path)


def _choices(entry: Entry, reader: Reader, path: str, encoder: bool) -> list[Any]:
    """The values of one key; BAD stands for each that cannot be used."""
    if entry.key not in _SHAPES:
        lines = [did_you_mean(entry.key, _SHAPES), f"keys: {', '.join(_SHAPES)}"]
        return [reader.problem(entry.key_where, path, f"a workload has no '{entry.key}'", lines)]
    if entry.key == "source" and not encoder:
        message = "'source' is the length of what the encoder reads, but this model has one stack"
        return [reader.problem(entry.key_where, path, message)]
    items = entry.value.items if isinstance(entry.value, SequenceNode) else (entry.value,)
    values = [reader.value(_SHAPES[entry.key], item, path) for item in items]
    if not items:
        return [reader.problem(entry.value.where, path, "the list is empty")]
    twice = next((value for value, times in Counter(values).items() if value is not BAD and times > 1), None)
    if twice is not None:
        return [reader.problem(entry.value.where, path, f"{twice} stands twice in the list")]
    return values


def _checked(workload: Workload, node: Node, reader: Reader, path: str) -> Workload:
    try:
        workload.settled()
    except UsageError as error:
        reader.problem(node.where, path, str(error).removeprefix("workload: "))
    return workload


def workload_schema() -> dict[str, Any]:
    """JSON Schema of one workload; a list as a value multiplies."""

    def one_or_many(shape: Shape) -> dict[str, Any]:
        schema = shape.json_schema(lambda kind: {})
        if offers_none(shape.leaf) and not shape.nullable:  # null says `none`
            schema = {"anyOf": [schema, {"type": "null"}]}
        return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}

    properties = {name: one_or_many(shape) for name, shape in _SHAPES.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}
