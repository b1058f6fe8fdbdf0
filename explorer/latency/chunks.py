"""Which candidates are measured together when there is no memory for all of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from explorer.latency.raw import Process

Beside = Mapping[str, frozenset[str]]
"""By key of each candidate those without which its times say nothing: its baseline, the baseline's clone."""

_SHARE_FOR_WEIGHTS = 0.8


def in_chunks(
    sizes: Mapping[str, int], beside: Beside, free: int | None, measure: Callable[[Sequence[str]], Process]
) -> Iterator[Process]:
    """A record for each group of candidates that were measured in the same rounds; for the rest see `chunks`.

    A candidate that runs out of memory beside others, or needs one that does, is measured again beside those that it
    needs alone.
    """
    hopeless = {key for key, size in sizes.items() if free is not None and size > free}
    groups = deque(chunks(sizes, beside, free))
    while groups:
        group = groups.popleft()
        process = measure(group)
        short = {one.candidate for one in process.failed if one.out_of_memory} - hopeless
        again = [key for key in group if short & _needed(key, beside) and _needed(key, beside) < set(group)]
        groups.extend(_ordered(sizes, keys) for keys in _largest([_needed(key, beside) for key in again]))
        found = _without(process, again)
        if found.tracks or found.failed or not again:
            yield found


def chunks(sizes: Mapping[str, int], beside: Beside, free: int | None) -> list[list[str]]:
    """The keys in groups that fit side by side and leave room for what they make while running.

    sizes: bytes of each candidate. free: bytes of the device, None where it does not say. Whatever is needed beside a
    candidate is in its group. One that does not fit at all takes no room: measuring does not try it, and says what is
    missing.
    """
    most = math.inf if free is None else free
    groups: list[frozenset[str]] = []
    for key in sizes:
        needed = _needed(key, beside)
        together = needed | groups[-1] if groups else needed
        if not groups or sum(sizes[one] for one in together if sizes[one] <= most) > most * _SHARE_FOR_WEIGHTS:
            groups.append(needed)
        else:
            groups[-1] = together
    return [_ordered(sizes, group) for group in _largest(groups)]


def _needed(key: str, beside: Beside) -> frozenset[str]:
    return beside[key] | {key}


def _largest(groups: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """The groups, each once, without those that another one holds."""
    distinct = list(dict.fromkeys(groups))
    return [group for group in distinct if not any(group < other for other in distinct)]


def _ordered(order: Collection[str], keys: Collection[str]) -> list[str]:
    return [key for key in order if key in keys]


def _without(process: Process, keys: Collection[str]) -> Process:
    """The record as if these candidates had not been there."""
    return replace(
        process,
        tracks=tuple(track for track in process.tracks if track.lane.candidate not in keys),
        failed=tuple(one for one in process.failed if one.candidate not in keys),
        facts={key: facts for key, facts in process.facts.items() if key not in keys},
    )
