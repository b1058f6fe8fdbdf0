"""What one workload shows of a model and its blocks, or of a block alone: matrix products and the cache it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from explorer.assembly.block import Block
from explorer.assembly.cache import Cache
from explorer.assembly.construction import dtype_of
from explorer.blueprint.workload import Workload
from explorer.cost.failures import understood
from explorer.cost.rows import Counts, Row, total
from explorer.cost.trace import Trace
from explorer.cost.walk import META, Look, Piece, Run, Step, Subject, Walked, walk

T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """Products of one pass and the bytes in the cache after it; spread: least and most products of a block's layers."""

    counts: Counts
    cache_bytes: int
    spread: tuple[int, int] | None = None


@dataclass(frozen=True)
class Observed:
    """whole: of the subject. layers: of the last layer of each block that ran. failure: why there is neither."""

    whole: Seen | None = None
    layers: Mapping[str, Seen] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True)
class Growth:
    """Bytes by which the cache of one sequence grows with a token: in all, and in the last layer of each block."""

    whole: int = 0
    layers: Mapping[str, int] = field(default_factory=dict)


def observe(subject: Subject, workload: Workload) -> Observed:
    """Matrix products of one settled workload and the cache after it; train is forward and backward.

    Raises: PluginError where a component's code fails.
    """
    if reason := _unseen(subject, workload):
        return Observed(failure=reason)
    with understood(subject) as trouble:
        walked, cache = _observed(subject, workload, _rows)
        rows = [row for piece in walked.pieces for row in piece.seen * piece.times]
        held = 0 if cache is None else sum(_held(piece, cache) * piece.times for piece in walked.pieces)
        layers = {label: _of_layers(pieces, cache) for label, pieces in walked.layers.items()}
        return Observed(Seen(total(rows), held), layers)
    return Observed(failure=trouble.reason)


def growth(subject: Subject, held: int, kv_dtype: str) -> Growth | str:
    """How the cache grows with the token after ``held`` ones, or why that cannot be observed.

    Raises: PluginError where a component's code fails.
    """
    workload = Workload("decode", 1, 1, held + 1, 1, kv_dtype=kv_dtype)
    with understood(subject) as trouble:
        cache, _ = _filled(subject, workload, merge=True)
        if cache is None:
            return Growth()

        def tokens_before(run: Run, layer: Block | None) -> int:
            before = 0 if layer is None else _tokens(layer, cache)
            run()
            return before

        walked = walk(subject, Step(1, 1, None, cache), tokens_before)
        return Growth(
            sum(_growth(piece, cache) * piece.times for piece in walked.pieces),
            {label: _growth(pieces[-1], cache) for label, pieces in walked.layers.items()},
        )
    return trouble.reason


def _unseen(subject: Subject, workload: Workload) -> str | None:
    """Why a step that needs a cache cannot be observed without one."""
    needs = length(workload.context) > length(workload.tokens)
    needs |= workload.phase == "decode" and subject.reads_source
    if not needs or subject.caches:
        return None
    return f"what it computes over a cache: {subject.module.stack.intake.limits.get('cache', 'it keeps none')}"


def _of_layers(pieces: list[Piece[list[Row]]], cache: Cache | None) -> Seen:
    counts = total(pieces[-1].seen)
    products = [total(piece.seen).matmul_flops for piece in {id(piece): piece for piece in pieces}.values()]
    spread = (min(products), max(products)) if len(set(products)) > 1 else None
    return Seen(counts, 0 if cache is None else _held(pieces[-1], cache), spread)


def _observed(subject: Subject, workload: Workload, look: Look[T]) -> tuple[Walked[T], Cache | None]:
    train = workload.phase == "train"
    # With tokens held, and for a decode step in any case, the source's keys and values stand in the cache.
    cached = length(workload.context) > length(workload.tokens) or workload.phase == "decode"
    source = None if cached or not subject.reads_source else workload.source
    for merge in (True, False):
        cache, filled = (None, None) if train else _filled(subject, workload, merge)
        walked = walk(subject, Step(workload.batch, length(workload.tokens), source, cache, train, merge), look)
        # Layers that looked alike with many tokens must still do so with few: only they have something in the cache.
        if filled is None or all(piece.layer in filled for piece in walked.pieces if piece.cached and piece.layer):
            break
    return walked, cache


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
    walked = walk(subject, Step(workload.batch, max(held, 1), source, cache, merge=merge), lambda run, layer: run())
    if not held:
        empty()
    return cache, {piece.layer for piece in walked.pieces if piece.layer is not None}


def _growth(piece: Piece[int], cache: Cache) -> int:
    return 0 if piece.layer is None or not piece.cached else _tokens(piece.layer, cache) - piece.seen


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
