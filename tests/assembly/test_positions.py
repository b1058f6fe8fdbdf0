"""Positions belong to the stack: equal ones are one, and their parameters count once."""

import pytest
import torch
from torch import nn

from explorer import Position, RefusedError
from explorer.cost.parts.likeness import likeness

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))


class Shift(Position):
    """rotate: q and k + a learned vector of the head's width."""

    def __init__(self, head_dim):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(head_dim))

    def rotate(self, x, positions):
        return x + self.shift


COMPONENTS = {"position": {"shift": Shift}}


def attentions(stack):
    return [part.branch for part in stack.parts() if hasattr(part.branch, "position")]


def test_one_instance_serves_all_layers(make):
    model = make(components=COMPONENTS, position="shift", layers=3)
    (position,) = model.stack.positions
    assert all(attention.position[0] is position for attention in attentions(model.stack))
    assert [name for name, _ in model.named_parameters() if "shift" in name] == ["stack.positions.0.shift"]


def test_other_head_widths_and_parameters_are_other_instances(make):
    fields = {"blocks": {"wide": {"head_dim": 8}, "again": {"head_dim": 4}}, "layers": ["block", "wide", "again"]}
    model = make(components=COMPONENTS, position="shift", **fields)
    assert [position.shift.numel() for position in model.stack.positions] == [4, 8]
    model = make(blocks={"far": {"position.base": 500000}}, layers=["block", "far", "block"])
    assert [position.base for position in model.stack.positions] == [10000, 500000]


def test_what_is_added_to_embeddings_comes_from_the_stacks_own(make):
    fields = {"blocks": {"odd": {"position": "none"}}, "layers": ["block", "odd"]}
    model = make(position={"learned": {"max_tokens": 7}}, **fields)
    (position,) = model.stack.positions
    assert position.max_tokens == 7
    nn.init.zeros_(position.table.weight)
    moved = make(position={"learned": {"max_tokens": 7}}, **fields)
    moved.load_state_dict(model.state_dict())
    nn.init.ones_(moved.stack.positions[0].table.weight)
    torch.testing.assert_close(moved(X), model(X + 1))


def learned_by_a_function(dim):
    class Added(Position):
        def embed(self, x, positions):
            return x + 1

    return Added()


ELSEWHERE = {"position": {"mine": learned_by_a_function}}
IDLE = [  # the stack's own, a block's, how it is called
    ("rope", "learned", "learned"),
    ("rope", "sinusoidal", "sinusoidal"),
    ("rope", "mine", "mine"),
    ({"learned": {"max_tokens": 7}}, {"learned": {"max_tokens": 9}}, "learned:max_tokens=9"),
]


@pytest.mark.parametrize(("own", "odd", "called"), IDLE)
@pytest.mark.parametrize("scope", ["model", "block"])
def test_a_block_cannot_have_another_position_for_embeddings(make, scope, own, odd, called):
    fields = {"blocks": {"odd": {"position": odd}}, "layers": ["odd", "block"]}
    message = f"position '{called}' of a block does nothing in attention, and only the stack's own position, '"
    with pytest.raises(RefusedError, match=message) as caught:
        make(scope, name="odd" if scope == "block" else None, components=ELSEWHERE, position=own, **fields)
    assert caught.value.where.file == "<mapping>"


def test_a_block_may_have_the_stacks_own_and_another_that_acts_in_attention(make):
    same = make(position="learned", blocks={"same": {"position": "learned"}}, layers=["block", "same"])
    assert len(same.stack.positions) == 1
    other = make(position="learned", blocks={"turned": {"position": "rope"}}, layers=["block", "turned"])
    assert len(other.stack.positions) == 2


def test_an_encoder_and_a_decoder_have_their_own(make):
    model = make(vocab=11, encoder={}, decoder={}, position={"learned": {"max_tokens": 7}})
    tables = [stack.positions[0].table.weight for stack in (model.encoder, model.stack)]
    assert tables[0] is not tables[1]


def test_a_block_holds_positions_without_owning_them(make):
    block = make("block", components=COMPONENTS, position="shift")
    assert block.stack.positions[0] is block.block.attention.branch.position[0]
    assert not any("shift" in name for name, _ in block.block.named_parameters())
    torch.testing.assert_close(block.double()(X.double()).float(), block.float()(X))


def test_a_head_width_that_no_attention_asks_for_is_not_refused(make):
    """rope needs an even width; here nothing is rotated."""
    model = make(heads=1, head_dim=5, attention="none")
    assert not model.stack.positions


def test_cross_attention_has_no_position(make):
    model = make(components=COMPONENTS, position="shift", encoder={})
    assert type(model.stack.layers[0].cross_attention.branch.position[0]) is Position


def test_decoder_layers_with_cross_attention_are_alike(make):
    first, second = make(encoder={}, decoder={"layers": 2}).stack.layers
    assert likeness(first) == likeness(second)
