"""The compile contract: one compiled object for two shapes and a step through the cache, without a graph break."""

from __future__ import annotations

import os
import shutil
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from explorer.testing.expect import expect_close, not_declared
from explorer.testing.toy import BATCH, LONGEST, TOKENS, Toy, ids

# The least that a kind works in: tracing the default attention again for each activation takes most of the time.
_AROUND: Mapping[str, Mapping[str, Any]] = {
    "norm": {"layers": 1, "attention": "none"},
    "activation": {"layers": 1, "attention": "none"},
    "attention": {"layers": 1, "feedforward": "none"},
    "residual": {"attention": "none"},
    "feedforward": {"layers": 1, "attention": "none"},
    "position": {"layers": 1, "feedforward": "none"},
}


def compiles(toy: Toy) -> None:
    """dynamo to take two prefill shapes and a step through the cache as one graph each, with eager's numbers"""
    model = toy.model(_AROUND[toy.kind]).eval()
    with torch.no_grad(), _compiled(model, "eager") as compiled:
        for shape in ((BATCH, TOKENS), (BATCH + 1, LONGEST)):
            wanted = f"the compiled model to give eager's output for (B, T) = {shape}"
            expect_close(compiled(ids(*shape)), model(ids(*shape)), wanted)
        if "cache" in model.stack.intake.limits:
            return
        cache, other = (model.make_cache(BATCH, TOKENS) for _ in range(2))
        for filled in (cache, other):
            model(ids()[:, :-1], cache=filled)
        step = ids()[:, -1:]
        wanted = "a compiled step through the cache to give eager's output"
        expect_close(compiled(step, cache=cache), model(step, cache=other), wanted)


def compiles_with_inductor(toy: Toy) -> None:
    """inductor to compile it and give eager's numbers"""
    _require_compiler()
    model = toy.model(_AROUND[toy.kind]).eval()
    with torch.no_grad(), _compiled(model, "inductor") as compiled:
        expect_close(compiled(ids()), model(ids()), "the model compiled with inductor to give eager's output")


@contextmanager
def _compiled(model: nn.Module, backend: str) -> Iterator[Callable[..., Any]]:
    """The model compiled without graph breaks. What was compiled elsewhere does not count towards dynamo's limits."""
    torch.compiler.reset()
    with warnings.catch_warnings():
        # Inductor imports parts of torch that torch itself has deprecated.
        warnings.simplefilter("ignore")
        try:
            yield torch.compile(model, fullgraph=True, backend=backend)
        finally:
            torch.compiler.reset()


def _require_compiler() -> None:
    """Raises: SkipTest where inductor has no C++ compiler, or no headers of Python to compile against."""
    names = [os.environ.get("CXX"), "g++", "clang++"]
    if not any(shutil.which(name) for name in names if name):
        not_declared("inductor needs a C++ compiler: none of $CXX, g++, clang++ was found")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        not_declared(f"inductor needs Python's headers: there is no Python.h in {sysconfig.get_path('include')}")
