"""Options that may stand without their value."""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

from explorer.errors import did_you_mean

Bare = Mapping[str, tuple[str, Sequence[str]]]
"""An option, the value it has when it stands alone, and the other words that are a value; so is a number."""


def command_with(options: Bare) -> type[TyperCommand]:
    """A command whose options may stand without a value: what follows one is its value only if it is such a word."""

    class Command(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> Any:
            return super().parse_args(ctx, filled(args, options))

    return Command


def filled(args: Sequence[str], options: Bare) -> list[str]:
    """The arguments with a value for each option that stands alone; what follows `--` is no option."""
    end = args.index("--") if "--" in args else len(args)
    found: list[str] = []
    for place, arg in enumerate(args):
        if place >= end or arg not in options:
            found.append(arg)
            continue
        alone, words = options[arg]
        following = args[place + 1] if place + 1 < end else ""
        found.append(arg if _is_value(following, (alone, *words)) else f"{arg}={alone}")
    return found


def _is_value(text: str, words: Sequence[str]) -> bool:
    """Whether it is one of the words, a number, or a slip of the pen: letters only, close to one of them."""
    if text in words or text.isdecimal():
        return True
    return text.isalpha() and did_you_mean(text, words) is not None
