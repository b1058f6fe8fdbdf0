"""One assembled layer against transformers' layer with the same weights, and fused against naive attention.

    pytest tests/benchmarks/bench_layers.py -o addopts="--import-mode=importlib" --benchmark-columns=median,rounds

dim 512, 256 tokens, batch 1, float32, one thread. Each pair is timed in turns, so that a slow moment of the machine
hits both; the ratio is the median over pairs. pytest-benchmark keeps ours; the table of ratios is printed at the end.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import explorer
from explorer.assembly.wiring import Pass
from tests.parity.families.llama_like import rope

DIM, HEADS, TOKENS, BATCH = 512, 8, 256, 1
ROUNDS = {"eager": 41, "compiled": 41}
Call = Callable[[Tensor], Tensor]
RESULTS: list[tuple[str, str, str, float, float, float, float, float]] = []


@dataclass(frozen=True)
class Shape:
    """A layer of both: our blueprint, their class and config, how theirs is called."""

    name: str
    blueprint: Mapping[str, Any]
    architecture: str
    config: Mapping[str, Any]
    theirs: Callable[[nn.Module], Call]


def llama_layer(model: nn.Module) -> Call:
    """Cosines and sines are theirs before the clock starts: they are made once for all layers."""
    x = torch.empty(BATCH, TOKENS, DIM)
    positions = torch.arange(TOKENS)[None]
    embedded = tuple(part.clone() for part in model.model.rotary_emb(x, positions))
    layer = model.model.layers[0]

    def call(x: Tensor) -> Tensor:
        y = layer(x, attention_mask=None, position_ids=positions, position_embeddings=embedded)
        return y[0] if isinstance(y, tuple) else y

    return call


def gpt2_layer(model: nn.Module) -> Call:
    layer = model.transformer.h[0]

    def call(x: Tensor) -> Tensor:
        y = layer(x)
        return y[0] if isinstance(y, tuple) else y

    return call


SIZES = {"hidden_size": DIM, "num_attention_heads": HEADS, "num_hidden_layers": 1, "vocab_size": 16}

SHAPES = (
    Shape(
        "llama",
        {"attention": {"gqa": {"kv_heads": 2}}, "feedforward": {"dense": {"hidden": 1408}}},
        "LlamaForCausalLM",
        {**SIZES, "num_key_value_heads": 2, "intermediate_size": 1408, "rms_norm_eps": 1e-6},
        llama_layer,
    ),
    Shape(
        "gpt-2",
        {
            "norm": "layernorm",
            "position": {"learned": {"max_tokens": TOKENS}},
            "activation": "gelu_tanh",
            "bias": True,
            "tie_embeddings": True,
        },
        "GPT2LMHeadModel",
        {"n_embd": DIM, "n_head": HEADS, "n_layer": 1, "n_positions": TOKENS, "vocab_size": 16,
         "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
        gpt2_layer,
    ),
    Shape(
        "deepseek-v3",
        {
            "position": {"rope": {"pairing": "interleaved"}},
            "attention": {"mla": {"q_rank": 192, "kv_rank": 128, "rope_dim": 32, "nope_dim": 64, "value_dim": 64}},
            "feedforward": {
                "moe": {"experts": 8, "top_k": 2, "hidden": 256, "shared": 1, "router": "sigmoid",
                        "selection_bias": True, "scale": 2.5, "groups": 4, "top_groups": 2}
            },
        },
        "DeepseekV3ForCausalLM",
        {**SIZES, "num_key_value_heads": HEADS, "q_lora_rank": 192, "kv_lora_rank": 128, "qk_rope_head_dim": 32,
         "qk_nope_head_dim": 64, "v_head_dim": 64, "intermediate_size": 256, "moe_intermediate_size": 256,
         "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
         "first_k_dense_replace": 0, "rms_norm_eps": 1e-6, "rope_parameters": rope(10000.0)},
        llama_layer,
    ),
)  # fmt: skip


def pair(shape: Shape) -> tuple[Call, Call]:
    """(ours, theirs), in evaluation mode with equal weights."""
    made = getattr(transformers, shape.architecture)
    config = made.config_class(**shape.config, attn_implementation="sdpa")
    torch.manual_seed(0)
    theirs = made(config).eval()
    blueprint = {"dim": DIM, "heads": HEADS, "vocab": 16, "layers": 1, **shape.blueprint}
    ours = explorer.build(explorer.load(blueprint), device="cpu").eval()
    explorer.load_weights(ours, theirs.state_dict())
    layer, run = ours.stack.layers[0], Pass()
    return lambda x: layer(x, run), shape.theirs(theirs)


def seed_pair() -> tuple[Call, Call]:
    """Fused and naive attention of the first seed text, (8, 256, 768), 12 heads."""
    built = []
    for name in ("mha", "mha_naive"):
        fields = {"dim": 768, "heads": 12, "attention": name, "feedforward": "none", "placement": "none"}
        fields |= {"residual": "none", "position": "none"}
        built.append(explorer.build(explorer.load(fields), scope="block", device="cpu").eval())
    fused, naive = (next(block.block.parts()).branches[0] for block in built)
    naive.load_state_dict(_apart(fused.state_dict(), heads=12))
    return fused, naive


def _apart(fused: Mapping[str, Tensor], heads: int) -> dict[str, Tensor]:
    q, k, v = fused["qkv.weight"].unflatten(0, (3, heads, -1))
    each = {"q": q, "k": k, "v": v}
    split = {f"{name}.{head}.weight": part[head] for name, part in each.items() for head in range(heads)}
    return {**split, "out.weight": fused["out.weight"]}


def direction(call: Call, shape: tuple[int, ...], backward: bool) -> Callable[[], object]:
    """One forward without gradients, or a forward and a backward from an input that requires them."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(2))

    def forward() -> Tensor:
        with torch.no_grad():
            return call(x)

    def both() -> Tensor:
        leaf = x.clone().requires_grad_()
        call(leaf).backward(weights)
        assert leaf.grad is not None
        return leaf.grad

    return both if backward else forward


def in_turns(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each, timed one after the other in every round, the order changing."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        ours(), theirs()
    gc.disable()
    for round_ in range(rounds):
        for side in (0, 1) if round_ % 2 else (1, 0):
            start = time.perf_counter()
            (ours, theirs)[side]()
            times[side].append(1000 * (time.perf_counter() - start))
    gc.enable()
    return times


@pytest.fixture(scope="module", autouse=True)
def _table(request: pytest.FixtureRequest) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    yield
    torch.set_num_threads(threads)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n\n| layer | direction | mode | ours ms | theirs ms | ratio, median (10 % to 90 %) |")
        print("|---|---|---|---|---|---|")
        for name, way, mode, mine, other, low, middle, high in RESULTS:
            print(f"| {name} | {way} | {mode} | {mine:.2f} | {other:.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) |")
        layers = [row[6] for row in RESULTS if row[0] != "fused / naive"]
        if layers:
            print(f"\ngeometric mean of the layers' ratios: {statistics.geometric_mean(layers):.3f}")


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "forward+backward"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.filterwarnings("ignore")
def test_layer(benchmark: Any, shape: Shape, backward: bool, mode: str) -> None:
    _compare(benchmark, shape.name, pair(shape), (BATCH, TOKENS, DIM), backward, mode)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "forward+backward"])
@pytest.mark.filterwarnings("ignore")
def test_fused_against_naive(benchmark: Any, backward: bool, mode: str) -> None:
    _compare(benchmark, "fused / naive", seed_pair(), (8, 256, 768), backward, mode)


def _compare(
    benchmark: Any, name: str, calls: tuple[Call, Call], shape: tuple[int, ...], backward: bool, mode: str
) -> None:
    torch.compiler.reset()
    calls = tuple(torch.compile(call) for call in calls) if mode == "compiled" else calls  # type: ignore[assignment]
    ours, theirs = (direction(call, shape, backward) for call in calls)
    torch.testing.assert_close(ours(), theirs(), rtol=1e-4, atol=1e-4)
    mine, other = in_turns(ours, theirs, ROUNDS[mode])
    ratios = [a / b for a, b in zip(mine, other, strict=True)]
    low, *_, high = statistics.quantiles(ratios, n=10)
    way = "forward + backward" if backward else "forward"
    medians = statistics.median(mine), statistics.median(other)
    RESULTS.append((name, way, mode, *medians, low, statistics.median(ratios), high))
    benchmark.extra_info.update(theirs_ms=medians[1], ratio=statistics.median(ratios))
    benchmark.pedantic(ours, rounds=3)
