"""Pairs of models, each built once a worker, and transformers without its remarks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import transformers

from tests.parity.families import FAMILIES
from tests.parity.harness import Pair


@pytest.fixture(scope="session", autouse=True)
def _silent() -> Iterator[None]:
    """It prints each generation config, and that a toy vocabulary lacks the special tokens of a real one."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


_built = cache(Pair)


@pytest.fixture(params=FAMILIES, ids=str)
def pair(request: pytest.FixtureRequest) -> Pair:
    return _built(request.param)
