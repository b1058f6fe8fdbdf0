"""Cross-entropy against smoothed labels, in the two ways that papers and code spread what the label gives away."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from explorer.errors import UsageError


def smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, *, smoothing: float = 0.1, spread: Literal["all", "others"] = "all"
) -> Tensor:
    """-sum_v q_v log softmax(logits)_v, the mean over tokens, with q = 1 - smoothing on the label and the rest spread.

    logits (..., V), targets (...) of class indices; a target of -100 is left out, as in torch. No parameters.
    spread `all`: smoothing / V on every class, the label too. Szegedy et al. 2015, arXiv:1512.00567 (Inception-v3), as
    in torch's own `label_smoothing`; what Vaswani et al. 2017, arXiv:1706.03762, cite for their 0.1.
    spread `others`: smoothing / (V - 1) on the other classes only: the code of that paper (tensor2tensor).
    Raises: UsageError for a smoothing below 0, or so large that the label would not be the likeliest class.
    """
    classes = logits.shape[-1]
    # Both mix the label with the uniform distribution; `others` takes a little more of the latter.
    share = {"all": smoothing, "others": smoothing * classes / max(classes - 1, 1)}[spread]
    if not 0 <= share < 1:
        most = {"all": 1.0, "others": (classes - 1) / classes}[spread]
        raise UsageError(f"smoothing must be from 0 to below {most:g} with {classes} classes, not {smoothing:g}")
    return F.cross_entropy(logits.reshape(-1, classes), targets.reshape(-1), label_smoothing=share)
