"""What can be read off a component without its help: parameters and matrix products."""

from __future__ import annotations

from torch import nn

from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.testing.expect import expect
from explorer.testing.toy import BATCH, TOKENS, Toy

_WORKLOADS = (
    Workload("prefill", BATCH, TOKENS, dtype="float32"),
    Workload("train", BATCH, TOKENS, dtype="float32"),
    Workload("decode", BATCH, context=TOKENS, dtype="float32"),
)


def parameters_add_up(toy: Toy) -> None:
    """the counted parameters to be the sum over parameters()"""
    counted = count(toy.plan(), _WORKLOADS[:1]).params
    for what, came, module in (("block", counted.block, toy.block().block), ("model", counted.model, toy.model())):
        wanted = _numel(module)
        expect(came == wanted, f"{wanted:,} parameters of the {what}, the sum over parameters()", f"{came:,}")


def every_operator_counted(toy: Toy) -> None:
    """a cost rule for every operator, in prefill, train and decode"""
    for cost in count(toy.plan(), _WORKLOADS).costs:
        unknown = ", ".join(cost.incomplete)
        expect(not unknown, f"every operator of {cost.workload.phase} ({cost.scope}) to have a cost rule", unknown)


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
