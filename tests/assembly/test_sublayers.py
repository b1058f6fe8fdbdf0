"""Placements and layouts against their formulas, written out with the model's own norms and sublayers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer.errors import PluginError, RefusedError

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
PLACEMENTS = {
    "pre": lambda x, part: x + part.branch(part.norm(x)),
    "sandwich": lambda x, part: x + part.norm_out(part.branch(part.norm(x))),
    "res_post": lambda x, part: x + part.norm_out(part.branch(x)),
    "post": lambda x, part: part.norm_post(x + part.branch(x)),
    "none": lambda x, part: x + part.branch(x),
}
NORMS = {"pre": ["norm"], "sandwich": ["norm", "norm_out"], "res_post": ["norm_out"], "post": ["norm_post"], "none": []}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_sequential_block_is_its_formula(make, placement):
    block = make("block", placement=placement)
    update = PLACEMENTS[placement]
    expected = update(update(X, block.block.attention), block.block.feedforward)
    torch.testing.assert_close(block(X), expected)
    for part in block.block.parts():
        assert [name for name in ("norm", "norm_out", "norm_post") if getattr(part, name) is not None] == NORMS[
            placement
        ]


PARALLEL = {  # y = sum of the sublayers' outputs on the same x
    "pre": lambda x, p, a, f: x + a(p.norm(x)) + f(p.norm(x)),
    "sandwich": lambda x, p, a, f: x + p.norm_out(a(p.norm(x)) + f(p.norm(x))),
    "res_post": lambda x, p, a, f: x + p.norm_out(a(x) + f(x)),
    "post": lambda x, p, a, f: p.norm_post(x + a(x) + f(x)),
    "none": lambda x, p, a, f: x + a(x) + f(x),
}


@pytest.mark.parametrize("placement", PARALLEL)
def test_a_parallel_block_is_its_formula(make, placement):
    block = make("block", placement=placement, layout="parallel")
    part = block.block.parallel
    expected = PARALLEL[placement](X, part, part.sublayers["attention"], part.sublayers["feedforward"])
    torch.testing.assert_close(block(X), expected)


@pytest.mark.parametrize("placement", ["pre", "sandwich"])
def test_a_parallel_block_with_a_norm_per_sublayer(make, placement):
    block = make("block", placement=placement, layout={"parallel": {"shared_norm": False}})
    part = block.block.parallel
    nn.init.normal_(part.norms["feedforward"].weight)
    y = sum(part.sublayers[name](part.norms[name](X)) for name in ("attention", "feedforward"))
    torch.testing.assert_close(block(X), X + (y if placement == "pre" else part.norm_out(y)))


def test_dropout_acts_on_the_sublayer_before_the_norm_and_in_training_only(make):
    block = make("block", placement="res_post", dropout={"sublayer": 0.5}, feedforward="none")
    part = block.block.attention
    torch.testing.assert_close(block(X), X + part.norm_out(part.branch(X)))
    block.train()
    torch.manual_seed(0)
    y = block(X)
    torch.manual_seed(0)
    torch.testing.assert_close(y, X + part.norm_out(F.dropout(part.branch(X), 0.5)))


@pytest.mark.parametrize(("sublayer", "left"), [("attention", "feedforward"), ("feedforward", "attention")])
def test_none_drops_the_sublayer_with_norm_and_residual(make, sublayer, left):
    block = make("block", **{sublayer: "none"})
    part = getattr(block.block, left)
    assert len(list(block.block.children())) == 1
    torch.testing.assert_close(block(X), X + part.branch(part.norm(X)))


@pytest.mark.parametrize("layout", ["sequential", "parallel"])
def test_a_block_of_nothing_is_the_identity(make, layout):
    block = make("block", attention="none", feedforward="none", layout=layout)
    assert not list(block.parameters())
    torch.testing.assert_close(block(X), X)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_zero_sublayers(make, placement):
    """karpathy/nanoGPT#278: the residual starts from the raw x, not from norm(x)."""
    block = make("block", placement=placement, bias=True)
    for last in (block.block.attention.branch.out, block.block.feedforward.branch.down):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    if placement == "pre":
        torch.testing.assert_close(block(X), X, rtol=0, atol=0)
    else:
        torch.testing.assert_close(block(X), F.layer_norm(F.layer_norm(X, (16,)), (16,)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"residual": "deepnorm"}, "residual 'deepnorm' is defined for placement post, not pre"),
        ({"attention": "rigid", "window": 4}, "attention 'rigid' takes no window, but the block has window 4"),
        (
            {"attention": "rigid", "causal": False},
            "attention 'rigid' is always causal, but the block has causal: false",
        ),
        (
            {"encoder": {"attention": "mha"}, "attention": "rigid", "position": "none"},
            "attention 'rigid' cannot be cross-attention: its forward takes no `context`",
        ),
        (
            {"residual": "deepnorm", "placement": "post", "layers": 1, "feedforward": "silent"},
            "residual DeepNorm sets its sublayer's weights, but Silent has no branch_weights()",
        ),
        ({"residual": "deepnorm", "placement": "post"}, "depends on the depth of the model: write `layers`"),
    ],
)
def test_undefined_combinations_are_refused(make, fields, message):
    components = {"attention": {"rigid": Rigid}, "feedforward": {"silent": Silent}}
    with pytest.raises(RefusedError, match=message):
        make(components=components, **fields)


class Rigid(nn.Module):
    """x W, taking neither window nor causal nor context."""

    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x)


class Silent(Rigid):
    """A feed-forward that names no weights."""


class Greedy(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x, weather):
        return x


@pytest.mark.parametrize(
    ("constructor", "message"),
    [
        (Greedy, "attention 'odd' of toy 1.0 .toy_package.: forward takes 'weather', but is offered x, context, mask"),
        (lambda dim: "text", "must build an nn.Module, not str"),
    ],
)
def test_a_sublayer_that_cannot_be_called_is_the_plugins_fault(make, constructor, message):
    with pytest.raises(PluginError, match=message):
        make("block", components={"attention": {"odd": constructor}}, attention="odd")


def test_a_residual_or_position_of_another_class_is_the_plugins_fault(make):
    with pytest.raises(PluginError, match=r"residual 'odd' of toy 1.0 must build an explorer.Residual, not Identity"):
        make("block", components={"residual": {"odd": lambda: nn.Identity()}}, residual="odd")
    with pytest.raises(PluginError, match=r"position 'odd' of toy 1.0 must build an explorer.Position, not Identity"):
        make(components={"position": {"odd": lambda: nn.Identity()}}, position="odd", attention="none")
