"""Options of the commands that measure."""

from enum import Enum
from typing import Annotated

import typer


class Effort(str, Enum):
    """What `--effort` takes."""

    quick = "quick"
    default = "default"
    publish = "publish"


Device = Annotated[
    str | None,
    typer.Option(metavar="D", help="Device to measure on, such as cpu or cuda:1. Default: a GPU if any."),
]
Efforts = Annotated[
    Effort, typer.Option(help="How long to measure: 1, 3 or 5 processes of 10, 20 or 30 clean rounds each, or more.")
]
Impl = Annotated[
    str,
    typer.Option(
        metavar="A,B", help="Implementations side by side: eager, compile (torch.compile; its seconds are told apart)."
    ),
]
Cache = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="auto: decode goes round copies of the weights that no cache holds, all else is warm; or warm, rotate, "
        "flush for all.",
    ),
]


Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the measurements that an interrupted run left in --out.")
]


def words(text: str) -> tuple[str, ...]:
    """The parts of a list that is written with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
