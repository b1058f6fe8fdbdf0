"""Words that a user may choose from."""

from __future__ import annotations

from collections.abc import Collection

from explorer.errors import UsageError, did_you_mean


def known(what: str, word: str, words: Collection[str]) -> str:
    """The word, where it is one of `words`. Raises UsageError, listing them, for another."""
    if word in words:
        return word
    guess = did_you_mean(word, words)
    raise UsageError(f"{what} {word!r} is unknown; it is one of: {', '.join(words)}" + (f"; {guess}" if guess else ""))
