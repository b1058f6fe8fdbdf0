"""Scores by which a sparse attention chooses keys: one function, so that the ledger counts the visible pairs only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from explorer.assembly.visible import Sight


def index_scores(q: Tensor, k: Tensor, weight: Tensor, visible: Sight) -> Tensor:
    """sum_h weight_h relu(q_h k^T) of the visible pairs and -inf of the others, (B, T, S) in float32.

    The "lightning indexer" of DeepSeek-V3.2 and V4 (arXiv:2606.19348): `heads` small queries, one key head.
    q (B, heads, T, width), k (B, 1, S, width), weight (B, T, heads). Float32 for q in float64 too.
    A `__torch_function__` sees this as one call.
    """
    tensors = (q, k, weight)
    if has_torch_function(tensors):
        return handle_torch_function(index_scores, tensors, q, k, weight, visible)
    B, heads, T, width = q.shape
    S = k.shape[-2]
    products = F.relu(q.transpose(1, 2).reshape(B, T * heads, width) @ k.squeeze(1).transpose(1, 2))
    products = products.view(B, T, heads, S).to(torch.float32)  # the dtype of q may overflow in the sum over heads
    scores = (weight.to(torch.float32).unsqueeze(2) @ products).squeeze(2)
    return scores if visible.everything(T, S) else scores.masked_fill(~visible.mask(T, S, q.device), float("-inf"))
