"""What one workload shows of a model and its blocks, or of a block alone: matrix products and the cache it leaves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
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
class Rate:
    """Bytes by which the cache of one sequence grows with a token: while windows are open, and once all are full."""

    opened: float = 0
    full: float = 0


@dataclass(frozen=True)
class Growth:
    """How the cache of one sequence grows: in all, and in the last layer of each block."""

    whole: Rate = Rate()
    layers: Mapping[str, Rate] = field(default_factory=dict)


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


def growth(subject: Subject, kv_dtype: str, longest: int | None) -> Growth | str:
    """How the cache grows with a token, over one compression period, or why that cannot be observed.

    The period: tokens after which everything that is kept has grown by whole entries, 1 without compression. longest:
    tokens that positions allow (None: any number): a shorter text is then all there is, and no wider window ever full.

    Raises: PluginError where a component's code fails.
    """
    with understood(subject) as trouble:
        if not subject.caches:
            return Growth()
        tokens = 1
        cache, walked = _from_nothing(subject, tokens, kv_dtype)
        period = math.lcm(*(written.every for view in cache.views for written in view.written()))
        if period > 1:
            tokens = period if longest is None else min(period, longest)
            cache, walked = _from_nothing(subject, tokens, kv_dtype)
        amounts = [(_written(piece, cache, longest), piece.times) for piece in walked.pieces]
        whole = [(opened * times, full * times) for (opened, full), times in amounts]
        layers = {label: _written(pieces[-1], cache, longest) for label, pieces in walked.layers.items()}
        return Growth(_rate(whole, tokens), {label: _rate([amount], tokens) for label, amount in layers.items()})
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
    empty = cache.timing_mark()
    # One token at least carries the source's keys and values in; few forwards take none.
    walked = walk(subject, Step(workload.batch, max(held, 1), source, cache, merge=merge), lambda run, layer: run())
    if not held:
        empty()
    return cache, {piece.layer for piece in walked.pieces if piece.layer is not None}


def _from_nothing(subject: Subject, tokens: int, kv_dtype: str) -> tuple[Cache, Walked[None]]:
    """One sequence of so many tokens through an empty cache, and the source where one is read."""
    cache = subject.module.make_cache(1, tokens, dtype_of(kv_dtype), META)
    source = 1 if subject.reads_source else None

    def run_only(run: Run, layer: Block | None) -> None:
        run()

    return cache, walk(subject, Step(1, tokens, source, cache), run_only)


def _written(piece: Piece[None], cache: Cache, longest: int | None) -> tuple[int, int]:
    """Bytes that a piece wrote into an empty cache: all of them, and those that no window will let go."""
    if piece.layer is None or not piece.cached:
        return 0, 0
    written = [written for slot in slots(piece.layer) for written in cache.views[slot].written()]
    for_ever = [w for w in written if w.full is None or (longest is not None and w.full >= longest)]
    return sum(w.nbytes for w in written), sum(w.nbytes for w in for_ever)


def _rate(amounts: Iterable[tuple[int, int]], tokens: int) -> Rate:
    opened, full = (Fraction(sum(column), tokens) for column in zip(*amounts, strict=True))
    return Rate(_number(opened), _number(full))


def _number(value: Fraction) -> float:
    """The same number, as an int where it is one."""
    return value.numerator if value.denominator == 1 else float(value)


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
