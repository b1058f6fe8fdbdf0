import torch
from torch import Tensor


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """exp(logits) (..., n, n) with its columns, then its rows divided by their sums, `iterations` times.

    Sinkhorn & Knopp 1967. Rows sum to 1; columns do in the limit. In the logarithm, so that no logit overflows and no
    row of tiny entries becomes 0 / 0.
    """
    # Matrix axes first: a softmax over n numbers at a time is fast where the tokens lie side by side.
    log = logits.movedim((-2, -1), (0, 1))
    for _ in range(iterations - 1):
        log = torch.log_softmax(torch.log_softmax(log, dim=0), dim=1)
    return torch.softmax(torch.log_softmax(log, dim=0), dim=1).movedim((0, 1), (-2, -1))
