"""How long one pass is: what the closed form of a component reads."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Lengths:
    """One pass of one sublayer, as `closed_form(at)` of a component gets it.

    batch: sequences. tokens: new ones of each sequence, the queries of an attention.
    context: tokens so far, the new ones included; in cross-attention those of the source.
    keys: how many of them are at hand: a cache lets go of what no window reaches.
    read: tokens whose keys and values this pass makes: the new ones; of a source all, or none where the cache has them.
    pairs: (query, key) pairs of one head; `exact`: the visible ones, else all of tokens x keys.
    backward: only products that pass a gradient on count, for backward takes each of these twice.
    """

    batch: int
    tokens: int
    context: int
    keys: int
    read: int
    pairs: int
    exact: bool = False
    backward: bool = False

    @property
    def offset(self) -> int:
        """Tokens before the first new one."""
        return self.context - self.tokens

    def of_backward(self) -> Lengths:
        """The same pass, asking for what a gradient flows through."""
        return replace(self, backward=True)


def itself(
    batch: int, tokens: int, context: int, *, causal: bool, window: int | None, cached: bool, exact: bool
) -> Lengths:
    """A sequence that reads itself; cached: the tokens before the new ones stand in a cache, up to a window."""
    keys = context
    if cached and window is not None:
        keys = tokens + min(context - tokens, window - 1)
    pairs = visible_pairs(tokens, context, causal=causal, window=window) if exact else tokens * keys
    return Lengths(batch, tokens, context, keys, tokens, pairs, exact)


def across(batch: int, tokens: int, source: int, *, cached: bool, exact: bool) -> Lengths:
    """A sequence that reads a source whole; cached: its keys and values stand in a cache."""
    return Lengths(batch, tokens, source, source, 0 if cached else source, tokens * source, exact)


def visible_pairs(tokens: int, context: int, *, causal: bool, window: int | None) -> int:
    """Pairs of one head, added up query by query: the reference for closed forms, whatever else is counted with.

    The last query stands at the last key. Causal: a query sees its own key and earlier ones, `window` of them at most;
    else (window - 1) // 2 keys before its own and window // 2 behind it, all without a window.
    """
    far = context if window is None else window
    before, after = (far - 1, 0) if causal else (far, far) if window is None else ((far - 1) // 2, far // 2)
    places = range(context - tokens, context)
    return sum(min(place + after, context - 1) - max(place - before, 0) + 1 for place in places)
