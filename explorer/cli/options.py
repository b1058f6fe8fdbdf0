"""Arguments and options that several commands take."""

from typing import Annotated

import typer

Source = Annotated[
    str,
    typer.Argument(metavar="BLUEPRINT", help="YAML file, name of a published blueprint, or - for standard input."),
]
Axis = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH=A,B",
        help="Explore these values of a path: attention=mha,gqa:kv_heads=8. Repeatable; replaces the blueprint's axis.",
    ),
]
Change = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change the blueprint: layers=2. Repeatable."),
]
Workload = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE,...",
        help="Count this workload: phase=decode,batch=8,context=4096. Repeatable; replaces the blueprint's.",
    ),
]
Modules = Annotated[
    list[str] | None,
    typer.Option("-p", metavar="MODULE", help="Load a plugin module for this call. Repeatable."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
