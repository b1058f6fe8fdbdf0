"""`csa` and `hca` against transformers' DeepSeek-V4, the formulas token by token in float64, and their own cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Attention, DeepseekV4RotaryEmbedding

import explorer
from explorer import Cache, Position, RefusedError, UsageError, Visible
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer_attentions.csa import csa
from explorer_attentions.hca import hca
from explorer_attentions.selected import RawAndCompressed
from explorer_positions.none import NoPosition
from explorer_positions.rope import RoPE

DIM, HEADS, HEAD_DIM, WINDOW, B = 16, 4, 8, 5, 2
CUTS = [(1,) * 23, (22, 1), (1, 22), (7, 1, 1, 5, 2, 1, 6), (2, 2, 3, 16), (20, 1, 1, 1)]
each_cut = pytest.mark.parametrize("cut", CUTS, ids=lambda cut: "+".join(map(str, cut)))
LAYERS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any]]] = {
    "sliding": (csa, {"ratio": None}),
    "csa": (csa, {"ratio": 2, "index_heads": 16, "index_dim": 8, "index_top_k": 3}),
    "hca": (hca, {"ratio": 3}),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def rope(base: float = 160000.0) -> Callable[[int], Position]:
    return lambda width: RoPE(width, base=base, dims=4, at="end", pairing="interleaved")


def built(name: str, window: int | None = WINDOW, position: Callable[[int], Position] | None = None, **own: Any) -> Any:
    constructor, parameters = LAYERS[name]
    torch.manual_seed(0)
    position = position or rope(10000.0 if name == "sliding" else 160000.0)
    module = constructor(DIM, HEADS, HEAD_DIM, window, position, 0.0, **{**parameters, **own}).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # biases and sinks start at zero
    return module


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def in_pieces(module: nn.Module, x: Tensor, cut: Sequence[int], mask: Tensor | None = None) -> Tensor:
    cache, outputs, start = Cache(1, batch=x.shape[0], capacity=x.shape[1]), [], 0
    for size in cut:
        end = start + size
        rows = None if mask is None else mask[..., start:end, :end]
        outputs.append(module(x[:, start:end], mask=rows, cache=cache.views[0]))
        cache.advance(size)
        start = end
    return torch.cat(outputs, dim=1)


# transformers' DeepSeek-V4 with the same weights


@dataclass
class Theirs:
    """One attention of transformers, with the positions and masks that its model would give it."""

    config: DeepseekV4Config
    attention: DeepseekV4Attention

    @torch.no_grad()
    def __call__(self, x: Tensor, cut: Sequence[int] | None = None) -> Tensor:
        cache, outputs, start = None if cut is None else DynamicCache(config=self.config), [], 0
        for size in cut or (x.shape[1],):
            outputs.append(self._piece(x[:, start : start + size], start, cache))
            start += size
        return torch.cat(outputs, dim=1)

    def _piece(self, x: Tensor, start: int, cache: DynamicCache | None) -> Tensor:
        places = torch.arange(start, start + x.shape[1]).expand(x.shape[0], -1)
        rotary = DeepseekV4RotaryEmbedding(self.config)
        embeddings = {kind: rotary(x, places, kind) for kind in ("main", "compress")}
        held = min(start, WINDOW - 1)
        keep = Visible(True, WINDOW).mask(x.shape[1], held + x.shape[1])
        mask = torch.zeros(keep.shape).masked_fill(~keep, float("-inf"))
        return self.attention(x, embeddings, places, mask.expand(x.shape[0], 1, -1, -1), cache)[0]


def theirs(name: str, ours: Any) -> Theirs:
    layers = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    config = DeepseekV4Config(
        hidden_size=DIM, num_hidden_layers=3, num_attention_heads=HEADS, head_dim=HEAD_DIM, q_lora_rank=12,
        layer_types=layers, compress_rates={layers[1]: 2, layers[2]: 3}, partial_rotary_factor=0.5,
        sliding_window=WINDOW, o_groups=2, o_lora_rank=6, index_n_heads=16, index_head_dim=8, index_topk=3,
        attn_implementation="eager",
    )  # fmt: skip
    attention = DeepseekV4Attention(config, list(LAYERS).index(name)).eval()
    attention.load_state_dict(dict(renamed(ours)), strict=True)
    return Theirs(config, attention)


def renamed(ours: Any) -> Iterator[tuple[str, Tensor]]:
    latent, kv = ours.down.weight.split([12, HEAD_DIM])
    yield from (("q_a_proj.weight", latent), ("kv_proj.weight", kv), ("sinks", ours.sinks))
    yield from (("q_a_norm.weight", ours.q_norm.weight), ("q_b_proj.weight", ours.q_up.weight))
    yield from (("kv_norm.weight", ours.k_norm.weight), ("o_a_proj.weight", ours.out.down.weight))
    yield "o_b_proj.weight", ours.out.up.weight
    if ours.compressor is not None:
        yield from pooling("compressor.", ours.compressor)
    if ours.indexer is not None:
        yield from pooling("compressor.indexer.", ours.indexer.compressor)
        yield "compressor.indexer.q_b_proj.weight", ours.indexer.query.weight
        yield "compressor.indexer.scorer.weights_proj.weight", ours.indexer.weight.weight


def pooling(prefix: str, ours: Any) -> Iterator[tuple[str, Tensor]]:
    values, gates = ours.project.weight.chunk(2)
    yield from ((f"{prefix}kv_proj.weight", values), (f"{prefix}gate_proj.weight", gates))
    yield from ((f"{prefix}position_bias", ours.bias), (f"{prefix}kv_norm.weight", ours.norm.weight))


V4 = {"q_rank": 12, "out_groups": 2, "out_rank": 6}


@each_layer
@pytest.mark.parametrize("T", [1, 2, 5, 12, 23])
def test_a_whole_text_equals_transformers(name: str, T: int) -> None:
    ours, x = built(name, **V4), drawn(B, T, DIM)
    torch.testing.assert_close(ours(x), theirs(name, ours)(x))


@each_layer
@each_cut
def test_a_text_in_pieces_equals_transformers(name: str, cut: Sequence[int]) -> None:
    ours, x = built(name, **V4), drawn(B, 23, DIM)
    torch.testing.assert_close(in_pieces(ours, x, cut), theirs(name, ours)(x, cut))


FLASH = {"dim": 4096, "heads": 64, "q_rank": 1024, "out_groups": 8}
PRO = {"dim": 7168, "heads": 128, "q_rank": 1536, "out_groups": 16}


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def at_size(constructor: Callable[..., nn.Module], dim: int, heads: int, **own: Any) -> int:
    with torch.device("meta"):
        return parameters(constructor(dim, heads, 512, 128, lambda width: NoPosition(), 0.0, **own))


@pytest.mark.parametrize("sizes", [FLASH, PRO], ids=["flash", "pro"])
def test_parameters_of_the_published_models(sizes: dict[str, Any]) -> None:
    layers = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    config = DeepseekV4Config(
        hidden_size=sizes["dim"], num_attention_heads=sizes["heads"], q_lora_rank=sizes["q_rank"],
        o_groups=sizes["out_groups"], num_hidden_layers=3, layer_types=layers,
    )  # fmt: skip
    with torch.device("meta"):
        expected = [parameters(DeepseekV4Attention(config, layer)) for layer in range(3)]
    ours = [at_size(csa, **sizes, ratio=None), at_size(csa, **sizes), at_size(hca, **sizes)]
    assert ours == expected


def test_layers_of_the_published_models_differ_by_their_compressors() -> None:
    """Whole layers of DeepSeek-V4: Flash 6,576,416,374 (sliding), 6,595,558,646 (csa), 6,580,676,726 (hca)."""
    sliding, sparse, heavy = at_size(csa, **FLASH, ratio=None), at_size(csa, **FLASH), at_size(hca, **FLASH)
    assert (sparse - sliding, heavy - sliding) == (6_595_558_646 - 6_576_416_374, 6_580_676_726 - 6_576_416_374)
    assert at_size(csa, **PRO) - at_size(hca, **PRO) == 25_768_646_454 - 25_744_655_030


# The formulas, token by token in float64


class Slope(Position):
    """A bias of -0.1 a token of distance."""

    def bias(self, T: int, S: int, offset: int) -> Tensor:
        query, key = torch.arange(offset, offset + T)[:, None], torch.arange(offset + T - S, offset + T)
        return -0.1 * (query - key).float().expand(HEADS, T, S)


def reference(module: Any, x: Tensor, mask: Tensor, window: int, slope: float = 0.0) -> Tensor:
    """No rotation. mask (B, T, T): a token hidden from a query hides each entry that holds it."""
    module = module.double()
    rows, T = x.double(), x.shape[1]
    latent, k = (rows @ module.down.weight.T).split([module.down.weight.shape[0] - HEAD_DIM, HEAD_DIM], dim=-1)
    q = rms(latent.unflatten(-1, (HEADS, HEAD_DIM)))
    k = rms(k) * module.k_norm.weight
    compressor = module.compressor
    entries, holds = pooled(compressor, rows)
    y = torch.zeros(x.shape[0], T, HEADS, HEAD_DIM, dtype=torch.float64)
    for b in range(x.shape[0]):
        for t in range(T):
            raw = [s for s in range(max(0, t - window + 1), t + 1) if mask[b, t, s]]
            open_ = [e for e in range(len(holds)) if max(holds[e]) <= t and all(mask[b, t, s] for s in holds[e])]
            chosen = best(module.indexer, rows[b], t, open_, b, rows)
            keys = torch.stack([*(k[b, s] for s in raw), *(entries[b, e] for e in chosen)]) if raw or chosen else None
            if keys is None:
                continue
            places = torch.tensor([*raw, *(e * compressor.ratio for e in chosen)])
            for h in range(HEADS):
                scores = keys @ q[b, t, h] / HEAD_DIM**0.5 - slope * (t - places)
                y[b, t, h] = (scores.exp() / (module.sinks[h].exp() + scores.exp().sum())) @ keys
    return y.flatten(2) @ module.out.up.weight.T


def rms(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def pooled(compressor: Any, rows: Tensor) -> tuple[Tensor, list[list[int]]]:
    """Entries (B, E, width), and the tokens that each one holds."""
    values, gates = (rows @ compressor.project.weight.T).chunk(2, dim=-1)
    r, w, E = compressor.ratio, compressor.width, rows.shape[1] // compressor.ratio
    entries, holds = torch.zeros(rows.shape[0], E, w, dtype=torch.float64), []
    for e in range(E):
        own = [(e * r + j, j, compressor.series - 1) for j in range(r)]
        before = [((e - 1) * r + j, j, 0) for j in range(r)] if compressor.series == 2 and e else []
        slots = before + own
        v = torch.stack([values[:, t, s * w : (s + 1) * w] for t, _, s in slots])
        z = torch.stack(
            [gates[:, t, s * w : (s + 1) * w] + compressor.bias[j, s * w : (s + 1) * w] for t, j, s in slots]
        )
        entries[:, e] = rms((v * z.softmax(0)).sum(0)) * compressor.norm.weight
        holds.append([t for t, _, _ in slots])
    return entries, holds


def best(indexer: Any, rows: Tensor, t: int, entries: list[int], b: int, batch: Tensor) -> list[int]:
    if indexer is None:
        return entries
    keys, _ = pooled(indexer.compressor, batch)
    q = (rows[t] @ indexer.query.weight.T).unflatten(-1, (indexer.heads, indexer.width))
    weight = rows[t] @ indexer.weight.weight.T
    scores = {e: (weight * (q @ keys[b, e]).relu()).sum().item() for e in entries}
    return sorted(scores, key=scores.__getitem__, reverse=True)[: indexer.top_k]


def masks(T: int) -> dict[str, Tensor]:
    rows = torch.ones(B, T, T, dtype=torch.bool)
    holes, empty, padded = rows.clone(), rows.clone(), rows.clone()
    holes[0, :, 3], holes[1, 9:, 8] = False, False
    empty[0, 4], empty[1, 11] = False, False
    padded[1, :, :5] = False  # of row 1 the first queries see nothing at all
    return {"all": rows, "holes": holes, "rows without a key": empty, "padding on the left": padded}


@pytest.mark.parametrize("name", ["csa", "hca"])
@pytest.mark.parametrize("which", masks(12))
@pytest.mark.parametrize("slope", [0.0, 0.1])
@torch.no_grad()
def test_equals_the_formulas(name: str, which: str, slope: float) -> None:
    position = Slope() if slope else NoPosition()
    T, module = 12, built(name, window=3, position=lambda width: position)
    mask, x = masks(T)[which], drawn(B, T, DIM)
    given = None if which == "all" else mask[:, None]
    ours, pieces = module(x, mask=given), in_pieces(module, x, (5, 1, 1, 4, 1), given)
    expected = reference(module, x, mask, window=3, slope=slope).float()
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(pieces, expected)


# Causality, windows, masks


@each_layer
@pytest.mark.parametrize("window", [None, 1, 4])
@each_cut
def test_pieces_through_the_cache_equal_one_pass(name: str, window: int | None, cut: Sequence[int]) -> None:
    module, x = built(name, window), drawn(B, 23, DIM)
    torch.testing.assert_close(in_pieces(module, x, cut), module(x))


@each_layer
@torch.no_grad()
def test_no_later_token_moves_an_earlier_one(name: str) -> None:
    module, x = built(name), drawn(B, 23, DIM)
    out = module(x)
    for token in range(1, 23):
        other = x.clone()
        other[:, token:] = drawn(B, 23, DIM, seed=2)[:, token:]
        torch.testing.assert_close(module(other)[:, :token], out[:, :token])


@torch.no_grad()
def test_beyond_the_window_only_whole_entries_are_seen() -> None:
    """Window 2, ratio 3: token 7 moves itself and the next one, and all later ones by the entry of tokens 6 to 8."""
    module, x = built("hca", window=2), drawn(1, 12, DIM)
    other = x.clone()
    other[:, 7] += 1.0
    moved = (module(other) != module(x)).any(-1)[0].tolist()
    assert moved == [False] * 7 + [True] * 5
    alone = built("sliding", window=2)
    assert (alone(other) != alone(x)).any(-1)[0].tolist() == [False] * 7 + [True] * 2 + [False] * 3


@pytest.mark.parametrize("name", ["csa", "hca"])
@torch.no_grad()
def test_a_hidden_token_does_not_come_in_by_an_entry(name: str) -> None:
    module, x = built(name), drawn(B, 20, DIM)
    mask = torch.ones(20, 20, dtype=torch.bool)
    mask[5:, 4] = False
    other = x.clone()
    other[:, 4] = drawn(B, 20, DIM, seed=2)[:, 4]
    torch.testing.assert_close(module(other, mask=mask)[:, 5:], module(x, mask=mask)[:, 5:])
    for shape in ((1, 1, 20, 20), (B, 1, 20, 20), (B, HEADS, 20, 20)):
        torch.testing.assert_close(module(x, mask=mask.expand(shape)), module(x, mask=mask))
    longer = torch.cat([torch.zeros(20, 3, dtype=torch.bool), mask], dim=1)  # its last columns count
    torch.testing.assert_close(module(x, mask=longer), module(x, mask=mask))
    everywhere = torch.ones(1, 1, 20, 1, dtype=torch.bool)
    torch.testing.assert_close(module(x, mask=everywhere), module(x))
    with pytest.raises(UsageError, match="a mask over 7 keys does not say which of 20 tokens"):
        module(x, mask=mask[:, :7])


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(RefusedError, match="heads 4 must divide by out_groups 3"):
        count(plan({"hca": {"out_groups": 3}}), [])
    with pytest.raises(RefusedError, match="attention 'csa' is always causal, but the block has causal: false"):
        count(plan("csa", causal=False), [])


# Counts


def plan(attention: Any, **fields: Any) -> Any:
    sizes = {"dim": DIM, "heads": HEADS, "head_dim": HEAD_DIM, "feedforward": "none", "window": WINDOW}
    return explorer.load({**sizes, "attention": attention, **fields}).plan()


@settings(deadline=None)
@given(
    st.integers(1, 12),
    st.integers(0, 20),
    st.integers(1, 5),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 6),
)
def test_the_number_of_pairs_is_what_the_mask_keeps(
    T: int, offset: int, ratio: int, window: int | None, top_k: int | None
) -> None:
    entries = (offset + T) // ratio
    rule = RawAndCompressed(Visible(True, window), ratio, offset, entries)
    kept = offset if window is None else min(offset, window - 1)
    S = kept + T + entries
    if top_k is not None:
        scores = torch.rand(1, T, entries).masked_fill(~rule.complete(T), float("-inf"))
        rule = rule.choosing(scores.topk(min(top_k, entries)).indices, top_k)
    mask = rule.mask(T, S).expand(1, 1, T, S)
    assert rule.pairs(T, S) == mask.sum().item()
    assert not rule.everything(T, S) or bool(mask.all())


def test_products_of_a_text_and_of_a_step() -> None:
    """csa without latent and groups: linear maps, the indexer's products, and 4 pairs head_dim heads in the core."""
    T, held, ratio, top, n, w = 10, 12, 2, 3, 16, 8
    own = {"csa": {"ratio": ratio, "index_heads": n, "index_dim": w, "index_top_k": top}}
    linear = (HEADS + 1) * HEAD_DIM + HEADS * HEAD_DIM + 4 * HEAD_DIM + n * w + n + 4 * w  # outputs a token, times DIM

    def counted(workload: Workload) -> tuple[int | None, int | None]:
        cost = count(plan(own), [workload]).costs[-1]
        return cost.matmul_flops, cost.matmul_flops_exact

    E = T // ratio
    flops = 2 * T * DIM * linear + 2 * T * E * n * w + 2 * T * E * n
    raw = sum(min(t + 1, WINDOW) for t in range(T))
    pairs = raw + sum(min((t + 1) // ratio, top) for t in range(T))
    core = 4 * HEADS * HEAD_DIM
    assert counted(Workload("prefill", 1, T)) == (flops + core * T * (T + E), flops + core * pairs)
    E = (held + 1) // ratio
    step = 2 * DIM * linear + 2 * E * n * w + 2 * E * n + core * (WINDOW + top)
    assert counted(Workload("decode", 1, context=held + 1)) == (step, step)  # a step reads what it chose


def test_training_leaves_the_indexer_alone() -> None:
    module = built("csa").train()
    module(drawn(B, 23, DIM)).sum().backward()
    without = {name for name, parameter in module.named_parameters() if parameter.grad is None}
    assert without == {name for name, _ in module.named_parameters() if name.startswith("indexer.")}
    assert list(module.idle_parameters) == ["indexer"]
    assert built("hca").idle_parameters == {}


@each_layer
def test_memory_is_a_window_compressed_entries_and_constant_states(name: str) -> None:
    module, T = built(name), 23
    cache = Cache(1, batch=B, capacity=100, dtype=torch.bfloat16)
    with torch.no_grad():
        module(drawn(B, T, DIM), cache=cache.views[0])
    held = cache.held()
    index, ratio = 8 if name == "csa" else 0, {"csa": 2, "hca": 3}.get(name)
    entries = T // ratio if ratio else 0
    assert held.tokens == B * 2 * (WINDOW * HEAD_DIM + entries * (HEAD_DIM + index))
    # values and gates of the open window; of two series also of the window before
    open_ = {"csa": 2 * 2 * 4 * (HEAD_DIM + index), "hca": 3 * 2 * HEAD_DIM}.get(name, 0)
    assert held.states == B * 4 * open_


@torch.no_grad()
def test_a_step_can_be_repeated() -> None:
    for name in LAYERS:
        module, x = built(name), drawn(B, 23, DIM)
        cache = Cache(1, batch=B, capacity=23)
        view = cache.views[0]
        for token in range(23):
            rewind = cache.mark()
            first = module(x[:, token : token + 1], cache=view)
            rewind()
            torch.testing.assert_close(module(x[:, token : token + 1], cache=view), first)
            cache.advance(1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["csa", "hca"])
def test_steps_that_complete_an_entry_compile(name: str) -> None:
    """As one graph each: seven tokens, a step, and another one, of which one completes an entry and one does not."""
    module, x = built(name), drawn(B, 9, DIM)
    torch.compiler.reset()
    try:
        compiled = torch.compile(module, fullgraph=True, backend="eager")
        torch.testing.assert_close(in_pieces(compiled, x, (7, 1, 1)), module(x))
    finally:
        torch.compiler.reset()


@each_layer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_half_precision_stays_near_float32(name: str, dtype: torch.dtype) -> None:
    """Inputs that overflow float16 when squared; the indexer keeps every entry, for a choice may turn over."""
    module, x = built(name, **({"index_top_k": 100} if name == "csa" else {})), 1000 * drawn(B, 23, DIM)
    expected = module(x.to(dtype).float())
    out, pieces = module.to(dtype)(x.to(dtype)), in_pieces(module, x.to(dtype), (7, 1, 15))
    assert out.dtype == pieces.dtype == dtype
    for came in (out, pieces):
        assert (came.float() - expected).norm() < 0.05 * expected.norm()
