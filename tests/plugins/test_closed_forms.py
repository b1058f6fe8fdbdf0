"""Closed forms of components: against numbers of the papers, and what a trace on meta counts at any sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.crosscheck import closed_form
from explorer.cost.crosscheck.calls import Calls
from explorer.cost.crosscheck.lengths import Lengths, across, itself, visible_pairs
from explorer.cost.crosscheck.one_pass import one_pass
from explorer.cost.crosscheck.ours import Ours
from explorer.cost.crosscheck.stage import Place, Stage
from explorer.cost.crosscheck.tool import Tool
from explorer.cost.ledger.trace import Trace

BARE = {"norm": "none", "placement": "none", "residual": "none", "attention": "none", "feedforward": "none"}
T, S = 64, 64


def papers(fields: dict[str, Any], workload: Workload, name: str = "block") -> dict[str, Tool]:
    """What the closed form says of a block, held against a trace of it: {quantity: tool}."""
    plan = explorer.load(fields).plan()
    place = Place.of(plan, name)
    stage = Stage(place, workload.settled(encoder=plan.encoder is not None), "meta")
    run = one_pass(stage)
    with Trace() as trace:
        run.all()
    with torch.inference_mode():
        written = one_pass(stage)
        with Calls() as calls:
            written.forward()
    counts = trace.counts()
    ours = Ours(counts.matmul_flops, counts.matmul_flops_exact, None)
    return {tool.quantity: tool for tool in closed_form.tools(stage, calls, ours)}


def flops(tokens: int = T, **fields: Any) -> int:
    """Dense FLOPs of one sequence by the closed form alone."""
    found = papers({"dim": 64, "heads": 4, **BARE, **fields}, Workload("prefill", 1, tokens, dtype="float32"))
    assert found["matmul_flops"].printed is not None, found["matmul_flops"].note
    return found["matmul_flops"].printed


def test_attentions_are_those_of_the_reference() -> None:
    d, h, k, g, b = 64, 4, 16, 2, T
    assert flops(attention="mha") == b * (8 * d * h * k + 4 * S * h * k)
    assert flops(attention="mha_naive") == b * (8 * d * h * k + 4 * S * h * k)
    assert flops(attention={"gqa": {"kv_heads": g}}) == b * (4 * d * h * k + 4 * d * g * k + 4 * S * h * k)
    assert flops(attention={"mha": {"gate": True}}) == b * (8 * d * h * k + 4 * S * h * k + 2 * d * h * k)
    # Two softmaxes, each of half the channels over values of all.
    assert flops(attention="differential") == b * (8 * d * h * k + 2 * 2 * S * h * (k // 2 + k))


def test_latent_attention_in_both_forms() -> None:
    """Public case B6: d 256, q rank 96, rank 64, nope 32, rope 16, value 32; expanded."""
    latent = {"q_rank": 96, "kv_rank": 64, "rope_dim": 16, "nope_dim": 32, "value_dim": 32}
    fields = {**BARE, "dim": 256, "heads": 4, "attention": {"mla": latent}, "causal": False}
    found = papers(fields, Workload("prefill", 1, 16, dtype="float32"))
    assert found["matmul_flops"].printed == 163_840 + 3_604_480
    # Absorbed, for one token that sees 1000.
    d, h, q, r, p, R, v, context = 256, 4, 96, 64, 32, 16, 32, 1000
    linears = d * q + q * h * (p + R) + d * (r + R) + h * p * r + h * v * r + h * v * d
    decode = papers({**fields, "causal": True}, Workload("decode", 1, context=context, dtype="float32"))
    assert decode["matmul_flops"].printed == 2 * linears + 2 * context * h * (2 * r + R)


def test_recurrences_read_and_write_a_state() -> None:
    """One token: S^T k and S^T q, 2 K V each; linear attention has the second alone."""
    d, h, k = 64, 4, 16
    step = Workload("decode", 1, context=9, dtype="float32")
    fields = {"dim": d, "heads": h, **BARE}
    linear = papers({**fields, "attention": "linear"}, step)["matmul_flops"].printed
    assert linear == 8 * d * h * k + 2 * h * k * k
    wide = h * k
    convolved, projected = 2 * 4 * 3 * wide, 2 * d * (4 * wide + 2 * h) + 2 * wide * d
    gated = papers({**fields, "attention": "gated_deltanet"}, step)["matmul_flops"].printed
    assert gated == projected + convolved + 4 * h * k * k
    low_rank = 2 * d * (3 * wide + k + h + k) + 2 * 2 * k * wide + 2 * wide * d
    kimi = papers({**fields, "attention": "kda"}, step)["matmul_flops"].printed
    assert kimi == low_rank + convolved + 4 * h * k * k


def test_a_chunk_of_linear_attention() -> None:
    """64 tokens are one chunk: q k^T and its product with v, then what is read and written of the state."""
    d, h, k, C = 64, 4, 16, 64
    assert flops(attention="linear") == C * 8 * d * h * k + h * (4 * C * C * k + 4 * C * k * k)


def test_compressed_attention() -> None:
    """DeepSeek-V4's: one entry for 4 tokens of 16, pooled from 8; an indexer of 2 queries of width 8 chooses 3."""
    d, h, k, tokens = 64, 4, 16, 16
    entries, raw = tokens // 4, tokens
    projections = tokens * 2 * d * (h * k + k + h * k)
    core = 4 * h * k * tokens * (raw + entries)
    hca = flops(tokens, attention={"hca": {"ratio": 4}})
    assert hca == projections + tokens * 4 * d * k + core
    indexer = tokens * 2 * (d * 2 * 8 + d * 2 + d * 4 * 8) + 2 * 2 * (8 + 1) * tokens * entries
    csa = flops(tokens, attention={"csa": {"ratio": 4, "index_heads": 2, "index_dim": 8, "index_top_k": 3}})
    assert csa == projections + tokens * 8 * d * k + core + indexer


def test_feed_forwards_are_those_of_the_reference() -> None:
    d, f, E, K, b = 64, 32, 8, 2, T
    assert flops(feedforward={"dense": {"hidden": f}}, activation="gelu") == b * 4 * d * f
    assert flops(feedforward={"dense": {"hidden": f}}, activation="swiglu") == b * 6 * d * f
    mixture = {"experts": E, "top_k": K, "hidden": f, "shared": 1, "shared_gate": True}
    routed = 2 * d * E + 6 * d * f * K
    assert flops(feedforward={"moe": mixture}, activation="swiglu") == b * (routed + 6 * d * f + 2 * d)
    latent = 2 * d * E + 6 * 16 * f * K + 4 * d * 16
    own = {"experts": E, "top_k": K, "hidden": f, "latent": 16}
    assert flops(feedforward={"latent_moe": own}, activation="swiglu") == b * latent


@pytest.mark.parametrize(
    ("residual", "sites"),
    [
        ("add", 0),
        ({"mhc": {"streams": 4}}, 2 * 232),
        ({"hyper_connections": {"streams": 4}}, 2 * (2 * 4 * 5 + 2 * 4 * 6)),
        ({"hyper_connections": {"streams": 4, "dynamic": False}}, 2 * (2 * 4 * 5)),
        # Of 3 layers the last: sites 4 and 5, which read 5 and 6 sources.
        ("attnres", 4 * (5 + 6)),
        # Layer 2 opens the second block of 2 layers: the embedding, one block; then the open one too.
        ({"block_attnres": {"block_size": 2}}, 4 * (2 + 3)),
    ],
)
def test_residuals_are_those_of_the_reference(residual: Any, sites: int) -> None:
    """In units of d FLOPs a token, both sites of a layer."""
    plain = {"dim": 64, "heads": 4, "layers": 3, "feedforward": {"dense": {"hidden": 32}}}
    workload = Workload("prefill", 1, T, dtype="float32")
    found = papers({**plain, "residual": residual}, workload)["matmul_flops"]
    layer = papers({**plain, "residual": "add"}, workload)["matmul_flops"].printed
    assert (found.printed, found.explained) == (layer + T * 64 * sites, True)


def test_a_highway_has_a_gate() -> None:
    """Both sublayers are gone, so no residual is left: a layer with a feed-forward has one gate."""
    gate = flops(residual="highway", feedforward={"dense": {"hidden": 32}}, activation="gelu")
    assert gate == T * (4 * 64 * 32 + 2 * 64 * 64)


@pytest.mark.parametrize("tokens", [1, 2, 5, 9])
@pytest.mark.parametrize("held", [0, 1, 6])
@pytest.mark.parametrize("window", [None, 1, 2, 4, 20])
@pytest.mark.parametrize("causal", [True, False])
def test_visible_pairs_are_those_of_a_mask(tokens: int, held: int, window: int | None, causal: bool) -> None:
    keys = tokens + held
    place, key = torch.arange(held, keys).unsqueeze(1), torch.arange(keys)
    seen = torch.ones(tokens, keys, dtype=torch.bool)
    if causal:
        seen &= key <= place
        seen &= key > place - (window or keys)
    elif window is not None:
        seen &= (key >= place - (window - 1) // 2) & (key <= place + window // 2)
    assert visible_pairs(tokens, keys, causal=causal, window=window) == int(seen.sum())


def test_public_case_b4() -> None:
    assert visible_pairs(64, 64, causal=True, window=None) * 256 == 532_480
    assert visible_pairs(64, 64, causal=True, window=8) * 256 == 123_904
    assert visible_pairs(4, 10, causal=True, window=None) * 2 * (8 + 16) == 1_632


def test_lengths_of_a_cached_window_and_of_a_source() -> None:
    own = itself(2, 3, 10, causal=True, window=4, cached=True, exact=False)
    assert own == Lengths(2, 3, 10, keys=6, read=3, pairs=18)
    assert own.offset == 7
    assert itself(2, 3, 10, causal=True, window=4, cached=True, exact=True).pairs == 12
    assert across(2, 3, 7, cached=False, exact=True) == Lengths(2, 3, 7, keys=7, read=7, pairs=21, exact=True)
    assert across(2, 3, 7, cached=True, exact=False).read == 0


def sizes(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from(values)


flags = st.booleans()
ATTENTIONS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "mha": st.fixed_dictionaries({"sinks": flags, "gate": flags}),
    "mha_naive": st.just({}),
    "gqa": st.fixed_dictionaries({"kv_heads": sizes(1, 2, 4), "softcap": st.sampled_from([None, 30.0])}),
    "mla": st.fixed_dictionaries(
        {
            "q_rank": st.sampled_from([None, 6]),
            "kv_rank": sizes(3, 16),
            "rope_dim": sizes(2, 8),
            "nope_dim": sizes(4, 6),
            "value_dim": sizes(4, 10),
            "gate": flags,
        }
    ),
    "differential": st.just({}),
    "linear": st.just({}),
    "gated_deltanet": st.fixed_dictionaries(
        {"key_heads": sizes(1, 2, 4), "key_dim": sizes(4, 6), "value_dim": sizes(4, 10), "conv": sizes(1, 4)}
    ),
    "kda": st.fixed_dictionaries({"decay_rank": sizes(1, 5), "out_gate": st.sampled_from(["low_rank", "full"])}),
    "hca": st.fixed_dictionaries(
        {
            "ratio": sizes(1, 3, 8),
            "q_rank": st.sampled_from([None, 6]),
            "sinks": flags,
            "out_groups": st.sampled_from([None, 1, 2]),
            "out_rank": sizes(3, 5),
        }
    ),
    "csa": st.fixed_dictionaries(
        {"ratio": sizes(1, 4), "index_heads": sizes(1, 3), "index_dim": sizes(2, 6), "index_top_k": sizes(1, 3, 50)}
    ),
}
FEEDFORWARDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "dense": st.fixed_dictionaries({"hidden": sizes(8, 24)}),
    "moe": st.fixed_dictionaries(
        {"experts": sizes(3, 4), "top_k": sizes(1, 3), "hidden": sizes(8, 12), "shared": sizes(0, 2)}
    ),
    "latent_moe": st.fixed_dictionaries(
        {
            "experts": sizes(3, 4),
            "top_k": sizes(1, 3),
            "hidden": sizes(8, 12),
            "latent": sizes(4, 8),
            "shared": sizes(0, 1),
        }
    ),
}
RESIDUALS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "add": st.just({}),
    "highway": st.just({}),
    "hyper_connections": st.fixed_dictionaries({"streams": sizes(1, 3), "dynamic": flags}),
    "mhc": st.fixed_dictionaries({"streams": sizes(1, 3), "iterations": st.just(2)}),
    "attnres": st.fixed_dictionaries({"key_norm": flags}),
    "block_attnres": st.fixed_dictionaries({"block_size": sizes(1, 2, 3)}),
}
WINDOWED = ("mha", "mha_naive", "gqa", "mla", "differential", "hca", "csa")


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    batch, tokens = draw(st.integers(1, 2)), draw(sizes(1, 3, 17, 40, 66, 130))
    dtype = draw(st.sampled_from(["float32", "bfloat16"]))
    phase = draw(st.sampled_from(["prefill", "later", "decode", "train"]))
    if phase == "later":
        return Workload("prefill", batch, tokens, tokens + draw(sizes(1, 7, 30)), dtype=dtype)
    if phase == "decode":
        return Workload("decode", batch, context=draw(sizes(1, 2, 9, 70)), dtype=dtype)
    return Workload(phase, batch, tokens, dtype=dtype)  # type: ignore[arg-type]


@st.composite
def blocks(draw: st.DrawFn, kind: str, name: str) -> dict[str, Any]:
    """A block with one component of its own parameters, all else cheap."""
    table = {"attention": ATTENTIONS, "feedforward": FEEDFORWARDS, "residual": RESIDUALS}[kind]
    fields = {**BARE, "dim": draw(sizes(16, 20)), "heads": 4, "head_dim": draw(sizes(4, 8)), "bias": draw(flags)}
    fields["position"] = draw(st.sampled_from(["none", "rope"]))
    fields["activation"] = draw(st.sampled_from(["gelu", "swiglu"]))
    if name in WINDOWED:
        fields["window"] = draw(st.sampled_from([None, 1, 5]))
    if kind == "residual":
        fields |= {"layers": draw(sizes(1, 3, 4)), "feedforward": {"dense": {"hidden": 8}}, "attention": "mha"}
    return {**fields, kind: {name: draw(table[name])}}


COMPONENTS = [
    (kind, name)
    for kind, table in (("attention", ATTENTIONS), ("feedforward", FEEDFORWARDS), ("residual", RESIDUALS))
    for name in table
]


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=lambda value: value)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_closed_forms_are_what_is_counted(kind: str, name: str, data: st.DataObject) -> None:
    """Dense and exact, prefill and decode with a cache, forward and backward."""
    found = papers(data.draw(blocks(kind, name)), data.draw(workloads()))
    assert set(found) == {"matmul_flops", "matmul_flops_exact"}, found
    for tool in found.values():
        assert (tool.printed, tool.gap) == (tool.ours, 0), tool


def _every_name() -> Iterator[tuple[str, str]]:
    from explorer.registry.loading import load_registry

    registry = load_registry()
    for kind in ("attention", "feedforward", "residual"):
        for component in registry.components(kind):
            if component.constructor is not None and component.package.startswith("explorer_"):
                yield kind, component.name


def test_all_components_with_products_are_drawn_from() -> None:
    """Residuals without products need no closed form."""
    plain = {"deepnorm", "layerscale", "none", "rezero", "scaled", "skipinit"}
    assert {name for _, name in _every_name()} - plain == {name for _, name in COMPONENTS}


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_cross_attention_reads_a_source_once(phase: Any) -> None:
    """B=2, T=10, S=25 (public case B3); a later step finds keys and values in the cache."""
    fields = {"dim": 64, **BARE, "heads": 4, "encoder": {}, "decoder": {"cross_attention": "mha"}}
    length = {"context": 10} if phase == "decode" else {"tokens": 10}
    found = papers(fields, Workload(phase, 2, source=25, dtype="float32", **length), "decoder.block")["matmul_flops"]
    d, tokens = 64, 1 if phase == "decode" else 10
    projections = 2 * (2 * 2 * tokens * d * d + (0 if phase == "decode" else 2 * 2 * 25 * d * d))
    assert found.printed == projections + 4 * 2 * tokens * 25 * d
    assert found.explained
