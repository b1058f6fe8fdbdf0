"""The parameters that have defaults, moved off them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch

from explorer.testing.checks.decoding import expect_decodes
from explorer.testing.checks.model import expect_gradients
from explorer.testing.expect import Unmet, expect_like
from explorer.testing.toy import BATCH, TOKENS, VOCAB, Toy, ids
from explorer.testing.values import other_settings


def other_settings_work(toy: Toy) -> None:
    """each parameter moved off its default to run, give gradients and decode, unless it is refused"""
    for moved, setting in accepted_settings(toy):
        _expect_works(moved, setting)


def accepted_settings(toy: Toy) -> Iterator[tuple[Toy, Mapping[str, Any]]]:
    """The component with one parameter moved off its default, for each parameter, and what it was set to."""
    for alternatives in other_settings(toy.component.schema, toy.registry):
        tried = ((toy.with_setting(setting), setting) for setting in alternatives)
        yield from islice((one for one in tried if one[0].refusal() is None), 1)


def _expect_works(toy: Toy, setting: Mapping[str, Any]) -> None:
    model = toy.model()
    try:
        expect_like(model(ids()), (BATCH, TOKENS, VOCAB), torch.float32, "the model's output")
        expect_gradients(model, ids())
        if "cache" not in model.stack.intake.limits:
            with torch.no_grad():
                expect_decodes(model.eval())
    except Unmet as unmet:
        said = ", ".join(f"{name}: {value}" for name, value in setting.items())
        raise Unmet(f"with {said}: {unmet.expected}", unmet.came) from None
