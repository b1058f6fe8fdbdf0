"""Whole models: embedding, heads, encoder-decoder, what a wrong call is told."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer.errors import RefusedError, UsageError

IDS = torch.tensor([[1, 4, 2, 8, 5], [7, 1, 4, 2, 8]])
SOURCE = torch.tensor([[3, 1, 4], [1, 5, 9]])
X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))


def hidden(model, x):
    """The stack without its entry: x (B, T, dim) through layers and final norm."""
    for part in model.stack.parts():
        x = x + part.branch(part.norm(x))
    return model.stack.final_norm(x)


def test_embedding_is_scaled_placed_typed_and_normed_in_this_order(make):
    embedding = {"scale": "sqrt_dim", "norm": True, "types": 2}
    model = make(vocab=11, embedding=embedding, position={"learned": {"max_tokens": 5}}, head="none")
    x = 4 * model.embedding.table.weight[IDS] + model.stack.positions[0].table.weight + model.embedding.types.weight[0]
    torch.testing.assert_close(model(IDS), hidden(model, model.embedding.norm(x)))


def test_without_a_vocabulary_the_stacks_are_alone(make):
    model = make(layers=2)
    assert model.embedding is None
    assert model.head is None
    torch.testing.assert_close(model(X), hidden(model, X))


def test_embedding_dropout_acts_once_in_training(make):
    model = make(dropout={"embedding": 0.5}, final_norm="none", attention="none", feedforward="none").train()
    torch.manual_seed(0)
    y = model(X)
    torch.manual_seed(0)
    torch.testing.assert_close(y, F.dropout(X, 0.5))


@pytest.mark.parametrize("tied", [False, True])
def test_lm_head(make, tied):
    head = {"lm": {"bias": True, "scale": "rsqrt_dim", "softcap": 3.0}}
    model = make(vocab=11, head=head, tie_embeddings=tied)
    nn.init.normal_(model.head.bias)
    table = model.embedding.table.weight if tied else model.head.table.weight
    logits = hidden(model, model.embedding.table.weight[IDS]) / math.sqrt(16) @ table.T + model.head.bias
    torch.testing.assert_close(model(IDS), 3 * torch.tanh(logits / 3))
    assert sum(p.shape == (11, 16) for p in model.parameters()) == (1 if tied else 2)


@pytest.mark.parametrize("moved", [copy.deepcopy, lambda m: m.to(torch.float64), lambda m: m.to("meta")])
def test_a_tied_table_stays_tied(make, moved):
    model = moved(make(vocab=11, tie_embeddings=True))
    assert model.head.tied[0] is model.embedding.table
    assert sum(p.shape == (11, 16) for p in model.parameters()) == 1


def test_pooler_reads_the_first_position(make):
    model = make(vocab=11, head={"pooler": {"activation": "tanh"}}, causal=False)
    h = hidden(model, model.embedding.table.weight[IDS])
    y = model(IDS)
    assert y.shape == (2, 16)
    torch.testing.assert_close(y, torch.tanh(model.head.linear(h[:, 0])))


def test_pooler_refuses_a_gated_activation(make):
    with pytest.raises(
        RefusedError, match=r"head 'pooler:activation=swiglu': its activation must take one input, not 2"
    ):
        make(vocab=11, head={"pooler": {"activation": "swiglu"}})


def test_head_none_gives_hidden_states(make):
    model = make(vocab=11, head="none")
    torch.testing.assert_close(model(IDS), hidden(model, model.embedding.table.weight[IDS]))


def test_encoder_decoder_is_its_formula(make):
    model = make(vocab=11, encoder={}, decoder={}, head="none")
    table = model.embedding.table.weight
    read = table[SOURCE]
    for part in model.encoder.parts():
        read = read + part.branch(part.norm(read))
    read = model.encoder.final_norm(read)
    own, over, wide = model.stack.layers[0].children()
    x = table[IDS] + own.branch(own.norm(table[IDS]))
    x = x + over.branch(over.norm(x), context=read)
    x = x + wide.branch(wide.norm(x))
    torch.testing.assert_close(model(IDS, SOURCE), model.stack.final_norm(x))


def test_an_encoder_sees_both_ways_and_a_decoder_does_not(make):
    model = make(vocab=11, encoder={}, decoder={}, head="none")
    changed = SOURCE.clone()
    changed[:, -1] = 0
    assert not torch.equal(model(IDS, SOURCE)[:, 0], model(IDS, changed)[:, 0])
    later = IDS.clone()
    later[:, -1] = 0
    torch.testing.assert_close(model(later, SOURCE)[:, :-1], model(IDS, SOURCE)[:, :-1])


def test_masked_source_tokens_do_not_matter(make):
    model = make(vocab=11, encoder={}, decoder={}, position="none")
    padded = torch.cat([SOURCE, torch.zeros(2, 2, dtype=torch.long)], dim=1)
    keep = (torch.arange(5) < 3).view(1, 1, 1, 5)
    torch.testing.assert_close(model(IDS, padded, source_mask=keep), model(IDS, SOURCE))


FIELDS = {
    "plain": {},
    "window": {"window": 3},
    "grouped": {"attention": {"gqa": {"kv_heads": 2}}, "layers": 2},
    "uneven": {"blocks": {"near": {"window": 2}}, "layers": ["near", "block"]},
    "parallel": {"layout": "parallel", "layers": 2},
    "learned": {"position": "learned"},
    "encoder-decoder": {"encoder": {}, "decoder": {"layers": 2}, "position": "sinusoidal"},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("steps", [(5,), (1, 1, 1, 1, 1), (3, 2)])
def test_steps_through_the_cache_equal_the_full_pass(make, fields, steps):
    model = make(vocab=11, **fields)
    source = SOURCE if "encoder" in fields else None
    cache = model.make_cache(2, 5)
    with torch.no_grad():
        parts = []
        for ids in IDS.split(steps, dim=1):
            parts.append(model(ids, None if parts else source, cache=cache))
        torch.testing.assert_close(torch.cat(parts, dim=1), model(IDS, source))
    assert cache.offset == 5


def test_a_padded_prompt_goes_on_through_the_cache(make):
    model = make(vocab=11, position="none", window=4)
    keep = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    keep[0, ..., :2] = False
    cache = model.make_cache(2, 5)
    steps = [model(IDS[:, a:b], mask=keep[..., :b], cache=cache) for a, b in ((0, 3), (3, 4), (4, 5))]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(IDS, mask=keep))
    torch.testing.assert_close(model(IDS, mask=keep)[:1, 2:], model(IDS[:1, 2:]))


def test_the_cache_holds_the_source_so_that_the_encoder_rests(make):
    model = make(vocab=11, encoder={}, decoder={})
    cache = model.make_cache(2, 5)
    first = model(IDS[:, :4], SOURCE, cache=cache)
    model.encoder.forward = None  # calling it would fail
    model(IDS[:, 4:], cache=cache)
    assert first.shape == (2, 4, 11)
    assert cache.held().cross == 2 * 2 * 3 * 16 * 4  # k and v, batch 2, 3 source tokens, dim 16, float32


def test_bytes_of_a_grouped_cache(make):
    model = make(vocab=11, attention={"gqa": {"kv_heads": 2}}, layers=3)
    cache = model.make_cache(2, 100, torch.bfloat16)
    model(IDS, cache=cache)
    assert cache.nbytes() == 2 * 5 * 3 * 2 * 2 * 4 * 2  # batch, tokens, layers, k and v, kv_heads, head_dim, bytes


def test_a_block_decodes_alone(make):
    block = make("block", "decoder.block", encoder={}, decoder={})
    context = torch.randn(2, 3, 16)
    cache = block.make_cache(2, 5)
    steps = [block(X[:, :4], context, cache=cache), block(X[:, 4:], cache=cache)]
    torch.testing.assert_close(torch.cat(steps, dim=1), block(X, context))


class Peeks(nn.Module):
    """Token ids added up, and a value that an earlier layer left in `shared`."""

    def __init__(self, dim, vocab, site):
        super().__init__()
        self.index = site.index

    def forward(self, x, ids, shared):
        shared.setdefault("first", self.index)
        return torch.zeros_like(x) + ids[..., None] + 100 * shared["first"]


def test_sublayers_may_read_ids_and_a_dict_that_lives_for_one_pass(make):
    fields = {"attention": "none", "feedforward": "peeks", "layers": 2, "head": "none", "placement": "none"}
    model = make(vocab=11, components={"feedforward": {"peeks": Peeks}}, **fields)
    for _ in range(2):
        torch.testing.assert_close(model(IDS), model.embedding.table.weight[IDS] + 2 * IDS[..., None])


class Forgetful(nn.Module):
    """The mean of the tokens so far: takes neither mask nor cache."""

    def __init__(self, causal, window):
        super().__init__()

    def forward(self, x):
        return x.cumsum(1)


class Unmasked(nn.Module):
    """Cross-attention that takes no mask: the mean of the context."""

    def __init__(self, dim):
        super().__init__()

    def forward(self, x, context, cache=None):
        return torch.zeros_like(x) + context.mean(1, keepdim=True)


COMPONENTS = {"attention": {"forgetful": Forgetful, "unmasked": Unmasked}}
CROSS_ONLY = {"encoder": {}, "cross_attention": "unmasked"}
KEEP = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("fields", "call", "message"),
    [
        ({"encoder": {}}, lambda m: m(IDS), "cross-attention needs `source`"),
        ({}, lambda m: m(IDS, SOURCE), "no encoder that could read a `source`$"),
        ({}, lambda m: m(IDS, source_mask=KEEP), "no encoder that could read a `source_mask`"),
        (
            CROSS_ONLY,
            lambda m: m(IDS, SOURCE, source_mask=KEEP),
            r"a `source_mask` \(a block: `context_mask`\) cannot be given: attention 'unmasked' takes no `mask`",
        ),
        ({"causal": False}, lambda m: m.make_cache(2, 5), "nothing to cache: block 'block' has causal: false"),
        ({"attention": "forgetful"}, lambda m: m.make_cache(2, 5), "attention 'forgetful' takes no `cache`"),
        ({"attention": "forgetful"}, lambda m: m(IDS, mask=IDS > 0), "attention 'forgetful' takes no `mask`"),
        ({"position": {"learned": {"max_tokens": 4}}}, lambda m: m(IDS), "5 tokens are more than the 4"),
    ],
)
def test_calls_that_cannot_be_answered(make, fields, call, message):
    model = make(vocab=11, components=COMPONENTS, **fields)
    with pytest.raises((UsageError, RefusedError), match=message):
        call(model)


def test_self_attention_takes_a_mask_that_cross_attention_does_not(make):
    model = make(vocab=11, components=COMPONENTS, **CROSS_ONLY)
    keep = torch.tensor([False, True, True, True, True])
    changed = torch.cat([(IDS[:, :1] + 1) % 11, IDS[:, 1:]], dim=1)
    logits = [model(ids, SOURCE, mask=keep)[:, 1:] for ids in (IDS, changed)]
    torch.testing.assert_close(*logits)


def test_a_context_that_a_block_does_not_read_is_not_ignored(make):
    block = make("block")
    for name, given in {"context": X, "context_mask": KEEP}.items():
        with pytest.raises(UsageError, match=f"this block has no cross-attention that could read a `{name}`$"):
            block(X, **{name: given})


def test_a_foreign_cache_is_not_ignored(make):
    cache = make(vocab=11).make_cache(2, 5)
    with pytest.raises(UsageError, match="a cache cannot be given: block 'block' has causal: false"):
        make(vocab=11, causal=False)(IDS, cache=cache)


def test_a_step_beyond_the_learned_table(make):
    model = make(vocab=11, position={"learned": {"max_tokens": 5}})
    cache = model.make_cache(2, 9)
    model(IDS, cache=cache)
    with pytest.raises(UsageError, match="6 tokens are more than the 5 that the learned positions hold"):
        model(IDS[:, :1], cache=cache)


@pytest.mark.parametrize("attention", ["mha", "linear", "gated_deltanet"])
@pytest.mark.parametrize(("batch", "tokens", "message"), [(3, 2, "made for batch 2"), (2, 6, "room for 5 tokens")])
def test_what_does_not_fit_a_cache_is_refused_before_anything_is_kept(make, attention, batch, tokens, message):
    model = make(vocab=32, attention=attention).eval()
    cache = model.make_cache(2, 5)
    with pytest.raises(UsageError, match=message):
        model(torch.zeros(batch, tokens, dtype=torch.int64), cache=cache)
    assert cache.nbytes() == cache.offset == 0
