import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import CacheView
from explorer_attentions.padding import without


class ShortConvolution(nn.Module):
    """silu(sum_j w_cj x_{t-j, c}), j = 0 ... width - 1: a causal convolution over time, each channel by itself.

    As Mamba has it in front of its recurrence (Gu & Dao 2023, arXiv:2312.00752), without bias. Padded on the left: T
    outputs for T inputs. A cache keeps the last width - 1 inputs, in the dtype of x. A hidden token (of `padding`) is
    read as zeros, as what stands in front of a text is; between others it keeps its place.
    """

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, width, groups=channels, bias=False)
        self.before = width - 1

    def forward(self, x: Tensor, cache: CacheView | None = None, hidden: Tensor | None = None) -> Tensor:
        y = without(x.transpose(1, 2), hidden)  # (B, channels, T)
        if cache is None:
            y = F.pad(y, (self.before, 0))
        else:
            fresh = y.shape[:2]
            y = torch.cat([cache.state("inputs", lambda: y.new_zeros(*fresh, self.before)), y], dim=-1)
            # A copy: a view would keep the whole text alive.
            cache.replace(inputs=y.narrow(-1, x.shape[1], self.before).clone())
        return F.silu(self.conv(y)).transpose(1, 2)  # (B, T, channels)
