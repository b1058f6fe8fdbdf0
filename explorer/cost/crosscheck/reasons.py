"""The known reasons why another counter prints another number.

Each is used with an amount that is predicted from shapes, never with what is left over: a number that does not follow
from ours and these amounts, to the last digit, stays unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass

from explorer.cost.crosscheck.tool import Reason


@dataclass(frozen=True)
class Known:
    """A reason that may apply. why: one sentence for a reader of the table."""

    name: str
    why: str

    def adds(self, amount: int) -> Reason:
        """It makes the tool say so much more, in FLOPs or parameters."""
        return Reason(self.name, self.why, amount)


FUSED_ATTENTION = Known(
    "fused attention not counted",
    "no rule for the fused kernel (FlopCounterMode on the CPU: pytorch#195460): 2 (k + v) of each pair and head",
)
WIDENED_ATTENTION = Known(
    "attention as its kernel runs it", "a sink is one more key in more channels, whose products are counted too"
)
MASK = Known("causal mask not used", "every query-key pair counts, whether a mask hides it or not")
GROUPED = Known("grouped products not counted", "no rule for products by group: the experts of a mixture")
GROUPED_CONVOLUTIONS = Known(
    "gradient of grouped convolutions", "the weight's gradient is counted as if all channels were one group"
)
BACKWARD = Known("forward only", "training is forward and backward, and the tool sees forward")
NORMS = Known("operations of norms counted", "4 or 5 of each element, as if they were multiply-adds")
BROADCAST = Known(
    "batch of a product left out",
    "the left operand's size times the right one's last axis, whatever the right one's batch",
)
EINSUM = Known("einsum rounded", "the count is read off a text with four digits")
UNREAD = Known(
    "results that nobody reads",
    "a trace drops what leads to no result of the block, such as the state after the last token",
)
LENGTH = Known(
    "sequence length ignored", "a Linear counts its weights once for each sequence of the batch, not each token"
)
GAINS = Known("biases and gains counted", "biases, and gains of norms, are multiply-adds once for each sequence")
OUTSIDE = Known(
    "products outside of modules not seen",
    "only weights of modules that are called count: no attention, no functional call, no bare parameter",
)
TIED = Known("tied weights twice", "a parameter that stands in two modules counts in both")
REUSED = Known(
    "modules in several places twice", "a module is listed in one of its places, and counts again in those that hold it"
)


def unknown_operator(op: str) -> Known:
    """Of an operator of torch's own."""
    return Known(f"{op} not counted", "no rule for this operator")


def custom_operator(op: str) -> Known:
    """Of an operator of a plugin."""
    return Known(f"{op} not counted", "only the plugin's own cost rule knows the products of its operator")
