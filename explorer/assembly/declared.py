"""What a component says of itself where it departs from what every component keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import nn


@runtime_checkable
class DeclaresIdle(Protocol):
    """A module some of whose parameters get no gradient from the model's output.

    idle_parameters: {name of a parameter or submodule of its own: why}.
    """

    idle_parameters: Mapping[str, str]


@runtime_checkable
class DeclaresLeaks(Protocol):
    """A module that, in training, lets a sample see others of its batch, or a token later ones; `leaks` says how."""

    leaks: str


@runtime_checkable
class DeclaresReach(Protocol):
    """An attention that, in a window, reads something of the tokens before it; `beyond_window` says what."""

    beyond_window: str


@runtime_checkable
class DeclaresPadding(Protocol):
    """An attention that takes no masks but those of padding, broadcastable to (B, 1, 1, S); `padding_only` says why."""

    padding_only: str


def idle_parameters(model: nn.Module) -> dict[str, str]:
    """{name of a parameter in `model`: why it gets no gradient}, as its modules declare."""
    found: dict[str, str] = {}
    for path, module in model.named_modules():
        declared = module.idle_parameters if isinstance(module, DeclaresIdle) else {}
        for own, reason in declared.items():
            for name, _ in module.named_parameters():
                if name == own or name.startswith(f"{own}."):
                    found[f"{path}.{name}" if path else name] = reason
    return found


def leaks(component: object) -> str | None:
    """How a component (its class, or one built) leaks in training, as it declares; None where it does not."""
    return component.leaks if isinstance(component, DeclaresLeaks) else None


def leaks_within(model: nn.Module) -> list[str]:
    """What the modules of a model declare to leak."""
    return [said for module in model.modules() if (said := leaks(module)) is not None]


def beyond_window(model: nn.Module) -> str | None:
    """What an attention in a model declares to read beyond its window; None: nothing."""
    return next((module.beyond_window for module in model.modules() if isinstance(module, DeclaresReach)), None)


def padding_only(model: nn.Module) -> str | None:
    """Why an attention in a model takes masks of padding only; None: all of them take any mask."""
    return next((module.padding_only for module in model.modules() if isinstance(module, DeclaresPadding)), None)
