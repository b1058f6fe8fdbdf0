"""Loads a state dict into a model: finds the family whose names it has, checks all of it, then copies."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from explorer.assembly.model import BlockModule, Model
from explorer.errors import UsageError, did_you_mean
from explorer.huggingface.weights.choice import family_of
from explorer.huggingface.weights.families import FAMILIES
from explorer.huggingface.weights.families.family import Family
from explorer.huggingface.weights.reading import Ours, Reading, Theirs
from explorer.huggingface.weights.report import Report, WeightsError

SOURCES: Mapping[str, tuple[Family, ...]] = {"hf": FAMILIES}


def load_weights(
    model: nn.Module, state_dict: Mapping[str, Tensor], source: str = "hf", *, strict: bool = True
) -> Report:
    """Copy the weights of a published model into one that `explorer.build` made, in its dtypes and on its devices.

    state_dict: names to tensors, as of `model.state_dict()` or from safetensors. Their family is told from the names:
        Llama (Mistral, Qwen 2 and 3, Phi-3, Cohere, Mixtral, OLMoE), Gemma 2 and 3, OLMo-2, DeepSeek V2 to V4, Kimi
        Linear, Qwen3-Next, gpt-oss, NanoChat, DiffLlama, GPT-2, GPT-J, GPT-NeoX, Falcon, BLOOM, BERT, T5.
        For a single block (scope="block") the names are those inside one layer. Tensors are read one at a time, so
        ``{name: file.get_tensor(name) for name in file.keys()}`` of a `safetensors.safe_open` (or its `load_file`),
        which maps files into memory, needs no memory for a second model.
        What no tensor shows is the blueprint's to say: heads of the same total width, eps, windows, rotations, scales.
    source: whose names these are; "hf": of transformers' classes and of the files on the hub.
    strict: whether everything must fit; False loads what fits and reports the rest.
    Raises: WeightsError with the report, before anything is copied; UsageError for a model without memory (device meta)
    and for a state dict in which no name is known.
    """
    families = _families(source)
    ours = Ours(_built(model))
    theirs = Theirs(_shapes(state_dict))
    family = family_of(families, ours.tensors, theirs.short.values(), alone=ours.alone)
    reading = Reading(ours, theirs, family)
    if len(reading.missing) == len(reading.made):
        raise UsageError(_unknown(families, theirs))
    report = reading.report(lambda one, other: _equal(state_dict[one], state_dict[other]))
    if strict and report.problems:
        raise WeightsError(report)
    reading.copy(state_dict)
    return report


def _families(source: str) -> tuple[Family, ...]:
    if source not in SOURCES:
        hint = did_you_mean(source, SOURCES)
        raise UsageError(f"source must be one of {', '.join(SOURCES)}, not {source!r}{f'; {hint}' if hint else ''}")
    return SOURCES[source]


def _built(model: nn.Module) -> Model | BlockModule:
    if not isinstance(model, Model | BlockModule):
        raise UsageError(f"weights are loaded into what explorer.build makes, not into {type(model).__name__}")
    if any(tensor.is_meta for tensor in model.state_dict().values()):
        raise UsageError(
            "a model on device meta has no memory for weights: build it with device='cpu' (or 'cuda'), "
            "in the dtype in which it shall hold them"
        )
    return model


def _shapes(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without their values. Raises: UsageError for what is no state dict."""
    if not isinstance(state_dict, Mapping):
        raise UsageError(f"a state dict is a mapping from names to tensors, not {type(state_dict).__name__}")
    shapes = {}
    for name, tensor in state_dict.items():
        if not isinstance(tensor, Tensor):
            raise UsageError(f"a state dict is a mapping from names to tensors, and its {name!r} is {_kind(tensor)}")
        if tensor.is_meta:
            raise UsageError(f"{name!r} of the state dict is on device meta: it has no values")
        shapes[name] = torch.empty_like(tensor, device="meta")
    return shapes


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}" + (" (is the state dict inside it?)" if isinstance(value, Mapping) else "")


def _unknown(families: tuple[Family, ...], theirs: Theirs) -> str:
    some = ", ".join(list(theirs.shapes)[:3]) or "none at all"
    known = ", ".join(family.name for family in families)
    return f"no tensor of the state dict has a name that a known family has ({known}); it has {some}"


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other.to(one.device))
