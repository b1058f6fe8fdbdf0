"""What one workload shows of a model or a block: matrix products, the cache it leaves, the parameters it uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch

from explorer.assembly.block import Block
from explorer.assembly.cache import Cache
from explorer.assembly.model import Model
from explorer.assembly.position import Position
from explorer.assembly.positions import embeds
from explorer.blueprint.workload import Workload
from explorer.cost.active import active_parameters
from explorer.cost.rows import Counts, Row, total
from explorer.cost.trace import Trace
from explorer.cost.walk import META, Look, Piece, Run, Step, Subject, walk
from explorer.errors import ExplorerError

T = TypeVar("T")


@dataclass(frozen=True)
class Observed:
    """cache_bytes: held after the pass. counts is None, and failure says why, where the pass cannot be run on meta."""

    counts: Counts | None
    cache_bytes: int
    failure: str | None = None


def dtype_of(name: str) -> torch.dtype:
    """``torch.bfloat16`` for "bfloat16"."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype


def observe(subject: Subject, workload: Workload) -> Observed:
    """Matrix products of one settled workload and the cache after it; train is forward and backward."""
    try:
        pieces, cache = _observed(subject, workload, _rows)
    except ExplorerError:
        raise
    except Exception as error:
        # Somebody's forward: it may need values (a loop over chosen experts), which meta tensors do not have.
        return Observed(None, 0, _failure(error))
    rows = [row for piece in pieces for row in piece.seen * piece.times]
    return Observed(total(rows), 0 if cache is None else sum(_held(piece, cache) * piece.times for piece in pieces))


def growth(subject: Subject, held: int, kv_dtype: str) -> int:
    """Bytes by which the cache of one sequence grows with the token after ``held`` ones."""

    def tokens_before(run: Run, layer: Block | None) -> int:
        before = 0 if layer is None or cache is None else _tokens(layer, cache)
        run()
        return before

    workload = Workload("decode", 1, 1, held + 1, 1, kv_dtype=kv_dtype)
    cache, _ = _filled(subject, workload, merge=True)
    if cache is None:
        return 0
    pieces = walk(subject, Step(1, 1, None, cache), tokens_before)
    return sum((_tokens(piece.layer, cache) - piece.seen) * piece.times for piece in pieces if piece.layer is not None)


def active(subject: Subject) -> tuple[int | None, str | None]:
    """Parameters that one token uses, or None and why that is not known."""
    others: list[Run] = []

    def look(run: Run, layer: Block | None) -> tuple[int | None, str | None]:
        if layer is not None:
            return active_parameters(layer, run)
        others.append(run)
        run()
        return 0, None

    try:
        pieces = walk(subject, Step(1, 1, 1 if subject.reads_source else None), look)
    except ExplorerError:
        raise
    except Exception as error:
        return None, _failure(error)
    unknown = next((piece.seen[1] for piece in pieces if piece.seen[0] is None), None)
    # Layers that do the same have weights of their own; embedding, norms and head may share theirs (a tied table).
    with torch.no_grad():
        rest, reason = active_parameters(subject.module, lambda: [run() for run in others])
    if rest is None or unknown is not None:
        return None, unknown or reason
    layers = sum((piece.seen[0] or 0) * piece.times for piece in pieces)
    return rest + layers + _position_tables(subject), None


def _failure(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"cannot be run on meta: {type(error).__name__}: {first}"


def _position_tables(subject: Subject) -> int:
    """Parameters of positions that act inside attention: tables of the stack, which count whole and once."""
    if not isinstance(subject.module, Model):
        return 0
    stacks = [stack for stack in (subject.module.encoder, subject.module.stack) if stack is not None]
    positions = [p for stack in stacks for p in stack.positions if isinstance(p, Position) and not embeds(type(p))]
    return sum(parameter.numel() for position in positions for parameter in position.parameters())


def _observed(subject: Subject, workload: Workload, look: Look[T]) -> tuple[list[Piece[T]], Cache | None]:
    train = workload.phase == "train"
    # With tokens held, and for a decode step in any case, the source's keys and values stand in the cache.
    held = not train and subject.caches and length(workload.context) > length(workload.tokens)
    source = None if held or workload.phase == "decode" or not subject.reads_source else workload.source
    for merge in (True, False):
        cache, filled = (None, None) if train else _filled(subject, workload, merge)
        pieces = walk(subject, Step(workload.batch, length(workload.tokens), source, cache, train, merge), look)
        # Layers that looked alike with many tokens must still do so with few: only they have something in the cache.
        if filled is None or all(piece.layer in filled for piece in pieces if piece.layer is not None):
            break
    return pieces, cache


def _rows(run: Run, layer: Block | None) -> list[Row]:
    with Trace() as trace:
        run()
    return trace.rows


def _filled(subject: Subject, workload: Workload, merge: bool) -> tuple[Cache | None, set[Block] | None]:
    """A cache that holds the tokens before this step, for decode the source too; and the layers that were filled."""
    if not subject.caches:
        return None, None
    assert workload.kv_dtype is not None, workload
    held = length(workload.context) - length(workload.tokens)
    cache = subject.module.make_cache(workload.batch, length(workload.context), dtype_of(workload.kv_dtype), META)
    if not held and not (workload.phase == "decode" and subject.reads_source):
        return cache, None
    source = workload.source if subject.reads_source else None
    empty = cache.mark()
    # One token at least carries the source's keys and values in; few forwards take none.
    pieces = walk(subject, Step(workload.batch, max(held, 1), source, cache, merge=merge), lambda run, layer: run())
    if not held:
        empty()
    return cache, {piece.layer for piece in pieces if piece.layer is not None}


def _tokens(layer: Block, cache: Cache) -> int:
    return sum(cache.views[slot].held().tokens for slot in slots(layer))


def _held(piece: Piece[list[Row]], cache: Cache) -> int:
    """Bytes that the cache holds for the attentions of a piece."""
    if piece.layer is None or not piece.cached:
        return 0
    return sum(cache.views[slot].held().total for slot in slots(piece.layer))


def slots(layer: Block) -> list[int]:
    """Places in the cache that a layer uses."""
    wirings = [wiring for part in layer.parts() for wiring in part.wirings]
    return [wiring.slot for wiring in wirings if "cache" in wiring.names]


def length(value: int | None) -> int:
    """A length that a settled workload has."""
    assert value is not None, "an unsettled workload"
    return value
