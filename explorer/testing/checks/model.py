"""What every component keeps when a model of two layers is built with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from explorer.assembly.declared import idle_parameters, leaks_within
from explorer.assembly.model import Model
from explorer.testing.expect import expect, expect_close, expect_like
from explorer.testing.toy import BATCH, LONGEST, TOKENS, VOCAB, Toy, ids, vectors

_MANY = 300
_ALL_DROPOUT = {"dropout": {"embedding": 0.5, "attention": 0.5, "activation": 0.5, "sublayer": 0.5}}


def builds(toy: Toy) -> None:
    """a fresh module with defaults, and required parameters as small as they come"""
    first, second = toy.model(), toy.model()
    shared = {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    expect(not shared, "two builds to share no parameter", f"{len(shared)} shared parameters")


def shape_and_dtype(toy: Toy) -> None:
    """finite outputs of the model's shape and dtype in float32 and bfloat16"""
    for dtype in (torch.float32, torch.bfloat16):
        model = toy.model(dtype=dtype)
        expect_like(model(ids()), (BATCH, TOKENS, VOCAB), dtype, f"the model's output in {dtype}")
        block = toy.block(dtype=dtype)
        x = vectors().to(dtype)
        expect_like(block(x, ids=ids()), tuple(x.shape), dtype, f"the block's output in {dtype}")


def gradients(toy: Toy) -> None:
    """every parameter to receive a finite gradient of its own size, and none that `idle_parameters` names"""
    expect_gradients(toy.model(), ids())


def no_parameter_is_dead(toy: Toy) -> None:
    """away from the start values, where gates may be zero, every parameter to move the output"""
    model = toy.model(dtype=torch.float64)  # rounding noise is then far below any gradient
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.add_(0.1 * vectors(*parameter.shape, seed=seed) if parameter.ndim else 0.1)
    # Of whole parameters: rows of experts that nobody chose, or of tokens that do not occur, have no gradient.
    expect_gradients(model, ids(), nonzero=True)


def expect_gradients(model: nn.Module, tokens: Tensor, source: Tensor | None = None, *, nonzero: bool = False) -> None:
    """Raises: Unmet naming the parameter that gets none, or one that was declared to get none and does."""
    idle = idle_parameters(model)
    _backward(model, tokens, source)
    if source is None and _silent(model, nonzero) - idle.keys():
        # What speaks once in many tokens (a pooled key for each 128) is silent in a short text.
        _backward(model, ids(tokens=_MANY), None)
    least = _least(model)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        wanted = f"parameter {name} to receive a gradient of shape {tuple(parameter.shape)}"
        expect(parameter.grad is not None or name in idle, wanted, "none: no output depends on it")
        if parameter.grad is None:
            continue
        expect(parameter.grad.shape == parameter.shape, wanted, f"shape {tuple(parameter.grad.shape)}")
        finite = bool(parameter.grad.isfinite().all())
        expect(finite, f"a finite gradient of parameter {name}", "nan or infinite values")
        largest = _largest(parameter.grad)
        if name in idle:
            wanted = f"no gradient of parameter {name}, as declared ({idle[name]})"
            expect(largest <= least, wanted, f"one of {largest:.1g}")
        elif nonzero:
            zeros = "a gradient of zeros, to rounding, away from the start values"
            expect(largest > least, f"parameter {name} to move the output", zeros)


_NOISE = 1e-9
"""Of the largest gradient in the model: what is less is rounding. In float64 the components of this repository leave
either less than 1e-15 or more than 1e-4."""


def _least(model: nn.Module) -> float:
    """What a gradient must exceed to count as one."""
    largest = [_largest(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    return _NOISE * max(largest, default=0.0)


def _largest(grad: Tensor) -> float:
    return grad.abs().max().item() if grad.numel() else 0.0


def _backward(model: nn.Module, tokens: Tensor, source: Tensor | None) -> None:
    """Adds to the gradients."""
    out = model(tokens) if source is None else model(tokens, source=source)
    # A random weighting: the plain sum after a norm is constant, so its gradient is zero.
    (out * vectors(*out.shape, seed=1)).sum().backward()


def _silent(model: nn.Module, zeros: bool) -> set[str]:
    """The names of the parameters without a gradient; with `zeros` those too whose gradient is zero."""
    least = _least(model)
    grads = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name for name, grad in grads.items() if grad is None or (zeros and _largest(grad) <= least)}


@torch.no_grad()
def repeatable_in_eval(toy: Toy) -> None:
    """evaluation to give the same output each time, dropout or not, whatever ran before"""
    model = toy.model(_ALL_DROPOUT).eval()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    first = model(ids())
    model(ids(BATCH + 1, LONGEST, seed=1))  # another shape in between: nothing of it may stay
    expect_close(model(ids()), first, "the same output for the same input in evaluation", rtol=0, atol=0)
    for name, value in model.state_dict().items():
        expect_close(value, kept[name], f"evaluation to leave {name} as it was", rtol=0, atol=0)
    expect_close(toy.model().eval()(ids()), first, "dropout to do nothing in evaluation")


@torch.no_grad()
def batch_rows_independent(toy: Toy) -> None:
    """no row of a batch to move another, unless in training where `leaks` says so"""
    _expect_rows_independent(toy.model().eval())
    model = toy.model()
    if leaks_within(model):
        _expect_leak(model)
    else:
        _expect_rows_independent(model)


@torch.no_grad()
def hides_the_future(toy: Toy) -> None:
    """no token of a causal model to move an earlier one, unless in training where `leaks` says so"""
    _expect_future_hidden(toy.model().eval())
    model = toy.model()
    if not leaks_within(model):
        _expect_future_hidden(model)


def _expect_leak(model: Model) -> None:
    out, other = model(ids()), ids()
    other[1, -1] = (other[1, -1] + 1) % VOCAB
    moved = not torch.equal(model(other)[0], out[0])
    expect(moved, "the last token of row 1 to move row 0 in training, as `leaks` says", "no change")


def _expect_rows_independent(model: Model) -> None:
    out = model(ids())
    other = ids()
    other[1] = (other[1] + 1) % VOCAB
    expect_close(model(other)[0], out[0], f"row 0 to stay as it is when row 1 changes{_in(model)}")
    expect_close(model(ids()[:1])[0], out[0], f"row 0 to stay as it is when it is alone{_in(model)}")


def _expect_future_hidden(model: Model) -> None:
    out = model(ids())
    for changed in range(1, TOKENS):
        other = ids()
        other[:, changed] = (other[:, changed] + 1) % VOCAB
        wanted = f"tokens 0 to {changed - 1} to stay as they are when token {changed} changes{_in(model)}"
        expect_close(model(other)[:, :changed], out[:, :changed], wanted)


def _in(model: Model) -> str:
    return " in training" if model.training else ""


@torch.no_grad()
def state_dict_round_trip(toy: Toy) -> None:
    """the state_dict to hold everything that makes a model's outputs"""
    model, other = toy.model().eval(), toy.model({"seed": 1}).eval()
    other.load_state_dict(model.state_dict())
    expect_close(other(ids()), model(ids()), "the same output after load_state_dict into a model of another seed")


@torch.no_grad()
def same_on_meta(toy: Toy) -> None:
    """meta to build the same tensors without values, usable after to_empty and load_state_dict"""
    model, meta = toy.model().eval(), toy.model(device="meta").eval()
    wanted, came = _layout(model), _layout(meta)
    expect(came == wanted, "on meta the same parameters and buffers as on the CPU", _difference(came, wanted))
    elsewhere = sorted({str(t.device) for t in (*meta.parameters(), *meta.buffers()) if not t.is_meta})
    expect(not elsewhere, "a model on meta to hold nothing anywhere else", f"tensors on {', '.join(elsewhere)}")
    out = meta(ids().to("meta"))
    expect(tuple(out.shape) == (BATCH, TOKENS, VOCAB), "a pass on meta to give the output's shape", tuple(out.shape))
    _to_empty(meta)
    meta.load_state_dict(model.state_dict())
    rule = "the same output after to_empty and load_state_dict (a buffer that is not persistent is made anew in _apply)"
    expect_close(meta(ids()), model(ids()), rule)


def _layout(model: nn.Module) -> dict[str, str]:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: f"{tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors.items()}


def _difference(came: dict[str, str], wanted: dict[str, str]) -> str:
    names = sorted(name for name in came.keys() | wanted.keys() if came.get(name) != wanted.get(name))
    return "; ".join(f"{name}: {came.get(name)} for {wanted.get(name)}" for name in names)


def _to_empty(module: nn.Module) -> None:
    """to_empty on the CPU with nan in fresh memory: what nobody fills shows."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        module.to_empty(device="cpu")
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
