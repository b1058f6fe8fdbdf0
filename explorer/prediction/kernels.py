"""What a calibration times: single calls of torch that are what blocks are made of, each with its FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from explorer.latency.clock import Call

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MIB = 2**20
WIDTH, HIDDEN, NARROW = 768, 3072, 64
"""Width and hidden width of the products that are timed, those of GPT-2 small, and a width of one head."""
TOKENS = (1, 8, 64, 128, 512, 2048)
"""Rows of a product with weights: from one decoded token to a prefill."""
SETS = 2
"""Operands that a product or an attention takes in turn: in a block, too, they are not those of the call before."""
TINY = 8
"""Elements of a call that is all overhead."""
FRESH_FROM = 32 * MIB
"""Bytes from which the C library asks the system for new memory each time, page by page: glibc's M_MMAP_THRESHOLD at
its largest (https://man7.org/linux/man-pages/man3/mallopt.3.html)."""
LARGE_BYTES = 2 * FRESH_FROM


@dataclass(frozen=True)
class Draw:
    """Random operands of one dtype on one device: constants flatter some devices."""

    dtype: torch.dtype
    device: str

    def __call__(self, *shape: int) -> Tensor:
        import torch

        generator = torch.Generator(self.device).manual_seed(0)
        # Drawn in float32: not every device draws in every dtype.
        return torch.randn(shape, generator=generator, device=self.device).to(self.dtype)

    def several(self, *shape: int) -> list[Tensor]:
        """Operands of one shape to take in turn."""
        return [self(*shape) for _ in range(SETS)]


Calls = Sequence[Call]


@dataclass(frozen=True)
class Kernel:
    """One call that is timed.

    group: what its time is for: `weights`, `narrow`, `footprint`, `products`, `attention`, `causal`, `cache`, `fresh`,
    or the operator or kind of rows that it stands for. flops: of visible pairs. weights, activations: bytes that it
    reads and writes, `result` of them the result's. footprint: bytes of everything that the calls take in turn, where
    that is more. tiny: its time is all overhead. build: makes the calls, which are run in turn.
    """

    key: str
    group: str
    build: Callable[[Draw], Calls]
    flops: int = 0
    weights: int = 0
    activations: int = 0
    result: int = 0
    footprint: int = 0
    tiny: bool = False


def kernels(itemsize: int, most_weights: int) -> tuple[Kernel, ...]:
    """All of them for a dtype of so many bytes; most_weights: bytes that take all caches several times over."""
    return (
        *(_product(rows, WIDTH, HIDDEN, "weights", itemsize) for rows in TOKENS),
        *(_product(rows, HIDDEN, WIDTH, "weights", itemsize) for rows in TOKENS[-3:]),
        _product(TOKENS[-1], WIDTH, NARROW, "narrow", itemsize),
        *(_footprint(size, itemsize) for size in _footprints(most_weights)),
        *(_between(*shape, itemsize) for shape in _PRODUCTS),
        *(_attention(*shape, "cache", itemsize) for shape in _ONE_QUERY),
        *(_attention(*shape, "attention", itemsize) for shape in _PLAIN),
        *(_attention(*shape, "causal", itemsize) for shape in _CAUSAL),
        *_elementwise(itemsize),
        *(_copy_in_pieces(size, itemsize) for size in _IN_PIECES),
        _copy(LARGE_BYTES, "fresh", itemsize),
    )


# Products -------------------------------------------------------------------------------------------------------------


def _product(rows: int, inner: int, outer: int, group: str, itemsize: int) -> Kernel:
    """x (rows, inner) times weights (outer, inner)."""

    def build(draw: Draw) -> Calls:
        import torch.nn.functional as F

        weights = draw(outer, inner)
        return [partial(F.linear, x, weights) for x in draw.several(rows, inner)]

    return Kernel(
        f"{group} {rows}x{inner}x{outer}",
        group,
        build,
        flops=2 * rows * inner * outer,
        weights=inner * outer * itemsize,
        activations=rows * (inner + outer) * itemsize,
    )


def _footprints(most: int) -> tuple[int, ...]:
    """From what a core's own cache holds to what no cache does."""
    return (*(size * MIB for size in (2, 8, 32, 128, 384) if size * MIB < most), most)


def _footprint(size: int, itemsize: int) -> Kernel:
    """One token times square weights, a different one each time, of so many bytes in all."""
    each = WIDTH * WIDTH * itemsize
    many = max(1, round(size / each))

    def build(draw: Draw) -> Calls:
        import torch.nn.functional as F

        x, one = draw(1, WIDTH), draw(WIDTH, WIDTH)
        return [partial(F.linear, x, weights) for weights in one.repeat(many, 1, 1)]

    return Kernel(
        f"footprint {size // MIB} MiB",
        "footprint",
        build,
        flops=2 * WIDTH * WIDTH,
        weights=each,
        activations=2 * WIDTH * itemsize,
        footprint=many * each,
    )


_PRODUCTS = ((12, 1, 64, 128), (12, 128, 64, 128), (96, 256, 64, 256))
"""(heads and batch, rows, inner, columns): scores of one token, of a short and of a long prefill."""


def _between(many: int, rows: int, inner: int, columns: int, itemsize: int) -> Kernel:
    """Two activations, as scores are."""

    def build(draw: Draw) -> Calls:
        import torch

        lefts, rights = draw.several(many, rows, inner), draw.several(many, columns, inner)
        pairs = zip(lefts, rights, strict=True)
        return [partial(torch.matmul, left, right.transpose(1, 2)) for left, right in pairs]

    return Kernel(
        f"products {many}x{rows}",
        "products",
        build,
        flops=2 * many * rows * inner * columns,
        activations=many * (rows * inner + inner * columns + rows * columns) * itemsize,
    )


_ONE_QUERY = ((1, 1, 128), (1, 1, 1024), (8, 1, 2048))
_PLAIN = ((16, 16, 16), (1, 128, 128), (8, 256, 256), (1, 1024, 1024))
_CAUSAL = ((16, 16, 16), (1, 128, 128), (8, 256, 256), (1, 1024, 1024), (1, 2048, 2048))
"""(batch, queries, keys) of attention in one kernel, 12 heads of 64."""
_HEADS = WIDTH // NARROW


def _attention(batch: int, queries: int, keys: int, group: str, itemsize: int) -> Kernel:
    """Attention in one kernel: of parts of one product (B, T, 3 width), or over a cache (B, heads, S, head_dim)."""

    def build(draw: Draw) -> Calls:
        import torch.nn.functional as F

        def heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (_HEADS, NARROW)).transpose(1, 2)

        def operands() -> Sequence[Tensor]:
            if queries == keys:
                return [heads(x) for x in draw(batch, queries, 3 * WIDTH).chunk(3, -1)]
            return [heads(draw(batch, queries, WIDTH)), *(draw(batch, _HEADS, keys, NARROW) for _ in "kv")]

        attend: Callable[..., object] = partial(F.scaled_dot_product_attention, is_causal=group == "causal")
        return [partial(attend, *operands()) for _ in range(SETS)]

    pairs = queries * (queries + 1) // 2 if group == "causal" else queries * keys
    size = batch * WIDTH * itemsize
    return Kernel(
        f"{group} {batch}x{queries}x{keys}",
        group,
        build,
        flops=4 * batch * WIDTH * pairs,
        activations=2 * size * (queries + keys),
        result=size * queries,
    )


# Element by element ---------------------------------------------------------------------------------------------------

_ROWS = (TINY / WIDTH, 16, 128, 512, 2048, 8192)


@dataclass(frozen=True)
class _Operator:
    """An operator on x (rows, WIDTH): how it is called, and how often x goes through the memory."""

    group: str
    call: Callable[[Draw, Tensor], Call]
    times: int = 2


def _operators() -> Sequence[_Operator]:
    import torch
    import torch.nn.functional as F

    def of(function: Callable[[Tensor], object]) -> Callable[[Draw, Tensor], Call]:
        return lambda draw, x: partial(function, x)

    def sum_of_two(draw: Draw, x: Tensor) -> Call:
        return partial(torch.add, x, draw(*x.shape))

    def of_half(function: Callable[[Tensor], object]) -> Callable[[Draw, Tensor], Call]:
        # A gate is one half of a product's columns, as wide again as x.
        return lambda draw, x: partial(function, torch.cat([x, x], -1).chunk(2, -1)[0])

    def joined(draw: Draw, x: Tensor) -> Call:
        # Halves of heads, as a rotation leaves them.
        return partial(torch.cat, x.view(-1, min(x.shape[-1], NARROW)).chunk(2, -1), -1)

    def normed(norm: Callable[..., object], parameters: int) -> Callable[[Draw, Tensor], Call]:
        return lambda draw, x: partial(norm, x, x.shape[-1:], *(draw(x.shape[-1]) for _ in range(parameters)), eps=1e-5)

    return (
        _Operator("copy", of(torch.clone)),
        _Operator("pointwise", sum_of_two, 3),
        _Operator("transcendental", of(torch.exp)),
        _Operator("aten::gelu", of(F.gelu)),
        _Operator("aten::silu", of_half(F.silu)),
        _Operator("aten::cat", joined),
        _Operator("softmax", of(lambda x: x.softmax(-1))),
        _Operator("reduction", of(lambda x: x.mean(-1, keepdim=True)), 1),
        _Operator("norm", normed(F.layer_norm, 2)),
        _Operator("rms_norm", normed(F.rms_norm, 1)),
    )


def _elementwise(itemsize: int) -> Iterator[Kernel]:
    yield _tiny("product", lambda draw: _product(1, TINY, TINY, "", itemsize).build(draw))
    yield _tiny("fused", lambda draw: _attention(1, 1, 1, "", itemsize).build(draw))
    for operator in _operators():
        for rows in _ROWS:
            count = int(rows * WIDTH)
            nbytes = operator.times * count * itemsize
            if count * itemsize < FRESH_FROM:
                yield _on_rows(operator, count, nbytes)


def _tiny(group: str, build: Callable[[Draw], Calls]) -> Kernel:
    return Kernel(f"tiny {group}", group, build, tiny=True)


def _on_rows(operator: _Operator, count: int, nbytes: int) -> Kernel:
    shape = (-1, min(count, WIDTH))

    def build(draw: Draw) -> Calls:
        return [operator.call(draw, draw(count).view(shape))]

    if count == TINY:
        return _tiny(operator.group, build)
    return Kernel(f"{operator.group} {count}", operator.group, build, activations=nbytes)


_IN_PIECES = tuple(size * MIB for size in (16, 32, 64, 96, 128, 256))
_PIECE = 4 * MIB


def _copy_in_pieces(size: int, itemsize: int) -> Kernel:
    """A copy of half so many bytes to as many others, piece by piece: too small each to be given new memory."""

    def build(draw: Draw) -> Calls:
        one = draw(_PIECE // itemsize)
        pieces = one.repeat(size // _PIECE, 1)
        half = len(pieces) // 2
        return [partial(into.copy_, piece) for piece, into in zip(pieces[:half], pieces[half:], strict=True)]

    return Kernel(f"copy {size // MIB} MiB in pieces", "copy", build, activations=2 * _PIECE, footprint=size)


def _copy(size: int, group: str, itemsize: int) -> Kernel:
    """A copy whose result is so large."""

    def build(draw: Draw) -> Calls:
        import torch

        return [partial(torch.clone, draw(size // itemsize))]

    return Kernel(f"{group} {size // MIB} MiB", group, build, activations=2 * size)
