"""Layouts of theirs that are not ours: each takes one of their tensors to ours, at a place that knows our sizes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from explorer.huggingface.weights.rules import Place


def transposed(weight: Tensor, place: Place) -> Tensor:
    """(in, out), as GPT-2's `Conv1D` and the experts of gpt-oss keep it; a bias has nothing to transpose."""
    return weight.mT if weight.ndim > 1 else weight


def in_our_shape(weight: Tensor, place: Place) -> Tensor:
    """The same numbers with axes of length 1, or heads, apart."""
    return weight.reshape(place.shape)


def own_row(weight: Tensor, place: Place) -> Tensor:
    """Ours is a list of modules, theirs one tensor with a row for each (Cohere)."""
    return weight[place.index]


def by_kv_head(weight: Tensor, place: Place) -> Tensor:
    """Rows [its query heads | k | v] for each key-value head, as [all q | all k | all v].

    Falcon; with as many key-value heads as queries also GPT-NeoX and BLOOM.
    """
    head_dim, width, kv_width = (place.size(name) for name in ("head_dim", "width", "kv_width"))
    queries = width // (kv_width // head_dim)
    return _apart(weight.unflatten(0, (-1, queries + 2 * head_dim)), [queries, head_dim, head_dim])


def keys_values_apart(weight: Tensor, place: Place) -> Tensor:
    """Rows [k | v] for each head of latent attention, as [all k | all v]."""
    heads, key, value = (place.size(name) for name in ("heads", "nope_dim", "value_dim"))
    return _apart(weight.unflatten(0, (heads, key + value)), [key, value])


def gate_before_queries(weight: Tensor, place: Place) -> Tensor:
    """Rows [q | gate] for each head, as [all gates | all q] (Qwen3-Next); without a gate as they are."""
    width = vars(place.owner).get("width")
    if not isinstance(width, int) or weight.shape[0] != 2 * width:
        return weight
    q, gate = weight.unflatten(0, (-1, 2, place.size("head_dim"))).unbind(1)
    return torch.cat([gate, q]).flatten(0, 1)


def by_key_head(weight: Tensor, place: Place) -> Tensor:
    """Rows [q | k | its v | its gates] for each key head of a gated delta net, as all q, all k, all v, all gates."""
    keys, width = place.heads("key_heads")
    apart = weight.unflatten(0, (keys, -1))
    values = (apart.shape[1] - 2 * width) // 2
    return _apart(apart, [width, width, values, values])


def beta_decay_apart(weight: Tensor, place: Place) -> Tensor:
    """Rows [its beta | its decays] for each key head of a gated delta net, as all betas, all decays."""
    keys, _ = place.heads("key_heads")
    values = place.heads("value_heads")[0] // keys
    return _apart(weight.unflatten(0, (keys, 2 * values)), [values, values])


def halves_swapped(weight: Tensor, place: Place) -> Tensor:
    """Rows of each head with its halves exchanged: NanoChat rotates the other way round."""
    head_dim = place.size("head_dim")
    return weight.unflatten(0, (-1, 2, head_dim // 2)).flip(1).flatten(0, 2)


def differences_together(weight: Tensor, place: Place) -> Tensor:
    """All first halves and then all second ones of differential attention, as the two halves of each head."""
    return weight.unflatten(0, (2, place.size("heads"), -1)).transpose(0, 1).flatten(0, 2)


def pairs_apart(weight: Tensor, place: Place) -> Tensor:
    """(experts, [dim,] gate and up in turn), as (experts, [gate | up] [, dim]) (gpt-oss)."""
    weight = weight.mT if weight.ndim == 3 else weight
    return torch.cat([weight[:, ::2], weight[:, 1::2]], dim=1)


def _apart(groups: Tensor, widths: Sequence[int]) -> Tensor:
    """(n, sum of widths, ...): the first rows of all n, then the second ones."""
    return torch.cat([part.flatten(0, 1) for part in groups.split(list(widths), dim=1)])
