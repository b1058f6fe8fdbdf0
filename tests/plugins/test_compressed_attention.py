"""`csa` and `hca` against transformers' DeepSeek-V4 and the formulas token by token in float64; causality and masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Attention, DeepseekV4RotaryEmbedding

from explorer import Position, RefusedError, UsageError, Visible
from explorer.cost.counting import count
from explorer_attentions.csa import csa
from explorer_attentions.hca import hca
from explorer_positions.none import NoPosition
from tests.plugins.compressed import (
    DIM,
    HEAD_DIM,
    HEADS,
    LAYERS,
    WINDOW,
    B,
    built,
    drawn,
    each_cut,
    each_layer,
    in_pieces,
    plan,
)

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
    return sorted(scores, key=lambda e: (scores[e], e), reverse=True)[: indexer.top_k]  # of equal ones the newest


def masks(T: int) -> dict[str, Tensor]:
    rows = torch.ones(B, T, T, dtype=torch.bool)
    holes, empty, padded = rows.clone(), rows.clone(), rows.clone()
    holes[0, :, 3], holes[1, 9:, 8] = False, False
    empty[0, 4], empty[1, 11] = False, False
    padded[1, :, :5] = False  # of row 1 the first queries see nothing at all
    return {"all": rows, "holes": holes, "rows without a key": empty, "padding on the left": padded}


@pytest.mark.parametrize(
    ("name", "own"),
    [("csa", {}), ("csa", {"index_heads": 1}), ("csa", {"index_heads": 2}), ("hca", {})],
    ids=["csa", "one index head", "two index heads", "hca"],
)
@pytest.mark.parametrize("which", masks(12))
@pytest.mark.parametrize("slope", [0.0, 0.1])
@torch.no_grad()
def test_equals_the_formulas(name: str, own: dict[str, Any], which: str, slope: float) -> None:
    """Of few index heads all are often 0: then several entries have the same score."""
    position = Slope() if slope else NoPosition()
    T, module = 12, built(name, window=3, position=lambda width: position, **own)
    mask, x = masks(T)[which], drawn(B, T, DIM)
    given = None if which == "all" else mask[:, None]
    ours, pieces = module(x, mask=given), in_pieces(module, x, (5, 1, 1, 4, 1), given)
    expected = reference(module, x, mask, window=3, slope=slope).float()
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(pieces, expected)


# Causality, windows, masks


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


def test_what_csa_and_hca_share_has_the_same_names_types_and_defaults() -> None:
    sparse, heavy = signature(csa).parameters, signature(hca).parameters
    assert [name for name in sparse if not name.startswith("index_")] == list(heavy)
    for name, parameter in heavy.items():
        assert (name, parameter.annotation, parameter.kind) == (name, sparse[name].annotation, sparse[name].kind)
        assert parameter.default == (128 if name == "ratio" else sparse[name].default)
    ours, theirs = ((f.__doc__ or "").split("\n\n")[-1].splitlines() for f in (csa, hca))
    assert [line for line in ours if "index_" not in line] == theirs


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(RefusedError, match="heads 4 must divide by out_groups 3"):
        count(plan({"hca": {"out_groups": 3}}), [])
    with pytest.raises(RefusedError, match="attention 'csa' is always causal, but the block has causal: false"):
        count(plan("csa", causal=False), [])


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
