"""A dropout rate that a constructor picks acts, and acts in training only."""

from __future__ import annotations

import torch

from explorer.testing.checks.decoding import require_pick
from explorer.testing.expect import expect, expect_close
from explorer.testing.toy import Toy, ids, vectors

_RATES = {"dropout": {"attention": 0.5, "activation": 0.5}}


@torch.no_grad()
def picked_dropout_acts(toy: Toy) -> None:
    """a dropout rate that is picked to act in training, and only there"""
    require_pick(toy, "dropout")
    block, x = toy.alone(_RATES), vectors()
    plain = toy.alone().eval()(x, ids=ids())
    expect_close(block.eval()(x, ids=ids()), plain, "dropout to do nothing in evaluation")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trained = block.train()(x, ids=ids())
    expect(not torch.equal(trained, plain), "dropout 0.5 to change the output in training", "the output of evaluation")
