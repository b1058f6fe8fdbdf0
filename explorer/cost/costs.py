"""What is counted: the numbers of one plan, each with its unit and convention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from explorer.blueprint.workload import Workload
from explorer.cost.ledger.rows import Counts
from explorer.cost.memory.memory import Memory


@dataclass(frozen=True)
class BlockParams:
    """Parameters of one layer of a block; layers: how many layers of the stack are of it."""

    name: str
    layers: int
    params: int


@dataclass(frozen=True)
class Params:
    """Distinct parameters. model is None, and active the block's, where the plan is a block and not a model.

    active: used for one token; None with the reason where that cannot be observed. shared: counted once, used again.
    """

    blocks: tuple[BlockParams, ...]
    model: int | None
    active: int | None
    active_reason: str | None
    shared: int

    @property
    def block(self) -> int | None:
        """Parameters of a layer, where all layers have as many."""
        sizes = {block.params for block in self.blocks if block.layers}
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True)
class KvBytes:
    """Cache bytes. per_token: growth with one more token, windows still open; per_token_full: once all are full.

    Both are means over one compression period, the tokens after which all compressed entries have grown by whole ones:
    an int, or a float where the division leaves a rest. cache: everything held at the workload's context, states and a
    source's keys and values included. None with the reason where it cannot be observed.
    """

    per_token: float | None
    per_token_full: float | None
    cache: int | None
    reason: str | None = None


@dataclass(frozen=True)
class Cost:
    """One scope on one workload; train is forward and backward.

    counts: sums over its operators (see `Counts`), None where it cannot be observed. by_kind: the same by what the
    parts are: attention, feedforward, norm, residual, embedding, head, loss. weight_bytes: as the workload stores
    weights. notes: why a number is None. varies_by_layer: least and most matmul_flops where layers of one block differ.
    memory: of a block that of its last layer alone, with all that comes into it.
    """

    workload: Workload
    scope: str
    name: str
    counts: Counts | None
    weight_bytes: int
    kv: KvBytes
    by_kind: Mapping[str, Counts] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    varies_by_layer: tuple[int, int] | None = None
    memory: Memory | None = None

    @property
    def matmul_flops(self) -> int | None:
        return None if self.counts is None else self.counts.matmul_flops

    @property
    def matmul_flops_exact(self) -> int | None:
        return None if self.counts is None else self.counts.matmul_flops_exact

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Operators without a rule and their calls, `lab::mix x2`: what they compute is not in the sums."""
        return () if self.counts is None else tuple(f"{op} x{calls}" for op, calls in self.counts.incomplete)


def incomplete_text(counts: Counts) -> str:
    """`Cost.incomplete` on one line."""
    return "; ".join(f"{op} x{calls}" for op, calls in counts.incomplete)


@dataclass(frozen=True)
class Counted:
    """Everything counted for one plan."""

    params: Params
    costs: tuple[Cost, ...]
