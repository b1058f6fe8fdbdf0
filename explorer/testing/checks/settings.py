"""The parameters that have defaults, moved off them one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from explorer.testing.checks.decoding import expect_decodes
from explorer.testing.checks.model import expect_gradients
from explorer.testing.expect import Unmet, expect_like
from explorer.testing.toy import BATCH, TOKENS, VOCAB, Toy, ids
from explorer.testing.values import other_settings


def other_settings_work(toy: Toy) -> None:
    """each parameter moved off its default to run, give gradients and decode, unless it is refused"""
    for alternatives in other_settings(toy.component.schema, toy.registry):
        for setting in alternatives:
            moved = toy.with_setting(setting)
            if moved.refusal() is None:
                _expect_works(moved, setting)
                break


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
