"""The residual protocol: which sites there are, what lives from embedding to end, whose parameters are whose."""

import pytest
import torch
from torch import nn

from explorer import Residual
from explorer.errors import RefusedError

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))


class Streams(Residual):
    """Two streams: the even sites write to the first, the odd ones to the second; a learned sum leaves."""

    placements = ("pre", "none")

    def __init__(self, dim, site):
        super().__init__()
        self.site = site
        self.gain = nn.Parameter(torch.full((2,), 0.5)) if site.end else nn.Parameter(torch.ones(dim))

    def enter(self, x):
        return x, 2 * x

    def read(self, state):
        first, second = state
        return first + second, (first, second, first - second)

    def write(self, state, y):
        first, second, difference = state
        target = self.gain * y + difference
        return (first + target, second) if self.site.index % 2 == 0 else (first, second + target)

    def leave(self, state):
        return self.gain[0] * state[0] + self.gain[1] * state[1]


class Depth(Residual):
    """x + y / layers."""

    def __init__(self, site):
        super().__init__()
        self.layers = site.layers

    def write(self, state, y):
        return state + y / self.layers


COMPONENTS = {"residual": {"streams": Streams, "by_depth": Depth}}


def test_the_state_lives_from_the_embedding_to_the_end(make):
    model = make(components=COMPONENTS, residual="streams", layers=2)
    first, second = X, 2 * X
    for index, part in enumerate(model.stack.parts()):
        y = part.branch(part.norm(first + second)) + first - second
        first, second = (first + y, second) if index % 2 == 0 else (first, second + y)
    torch.testing.assert_close(model(X), model.stack.final_norm(0.5 * first + 0.5 * second))


def test_sites_are_counted_over_the_stack(make):
    model = make(
        components=COMPONENTS,
        residual="streams",
        blocks={"lone": {"feedforward": "none"}, "wide": {"layout": "parallel"}},
        layers=["block", "lone", "wide", "block"],
    )
    sites = [part.residual.site for part in model.stack.parts()]
    assert [(s.index, s.layer, s.sublayer, s.sublayers) for s in sites] == [
        (0, 0, 0, 2), (1, 0, 1, 2), (2, 1, 0, 1), (3, 2, 0, 1), (4, 3, 0, 2), (5, 3, 1, 2),
    ]  # fmt: skip
    assert {(s.total, s.layers, s.stack, s.encoder_layers, s.decoder_layers) for s in sites} == {
        (6, 4, "decoder", 0, 4)
    }
    end = model.stack.leave.site
    assert (end.index, end.total, end.end) == (6, 6, True)
    assert not any(s.end for s in sites)


def test_sites_of_an_encoder_decoder(make):
    model = make(components=COMPONENTS, residual="streams", encoder={"layers": 3}, decoder={"layers": 2})
    encoder = [part.residual.site for part in model.encoder.parts()]
    decoder = [part.residual.site for part in model.stack.parts()]
    assert [len(encoder), len(decoder)] == [6, 6]
    assert {(s.stack, s.layers, s.sublayers, s.encoder_layers, s.decoder_layers) for s in encoder} == {
        ("encoder", 3, 2, 3, 2)
    }
    assert {(s.stack, s.layers, s.sublayers, s.encoder_layers, s.decoder_layers) for s in decoder} == {
        ("decoder", 2, 3, 3, 2)
    }


def test_the_residual_that_leaves_belongs_to_the_model(make):
    block = make("block", components=COMPONENTS, residual="streams", layers=2)
    assert block.stack.leave.gain.shape == (2,)
    assert not any(parameter is block.stack.leave.gain for parameter in block.block.parameters())
    assert block(X).shape == X.shape


def test_a_block_stands_at_the_place_of_its_last_layer(make):
    fields = {"blocks": {"a": {}, "b": {}}, "layers": ["a", "b", "a", "b"], "residual": "streams"}
    block = make("block", "a", components=COMPONENTS, **fields)
    assert [part.residual.site.index for part in block.block.parts()] == [4, 5]


def test_depth_is_known_only_where_layers_are_written(make):
    assert make(components=COMPONENTS, residual="by_depth", layers=3).stack.layers[0].attention.residual.layers == 3
    with pytest.raises(RefusedError, match=r"residual 'by_depth'.*write `layers`"):
        make("block", components=COMPONENTS, residual="by_depth")


def test_a_residual_must_write(make):
    model = make(components={"residual": {"empty": lambda: Residual()}}, residual="empty")
    with pytest.raises(NotImplementedError, match=r"residual Residual must define write\(state, y\)"):
        model(X)
