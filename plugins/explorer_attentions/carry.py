"""The state from one chunk to the next: the only part of the chunkwise form that goes one by one."""

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from explorer import OpCost

Carried = tuple[Tensor, Tensor, Tensor]


def carry(erase: Tensor, write: Tensor, keep: Tensor, decay: Tensor, state: Tensor) -> Carried:
    """(S_1 ... S_n, u_1 ... u_n, S_n+1): u_i = write_i - erase_i S_i, S_i+1 = decay_i S_i + keep_i u_i, S_1 = state.

    erase (N, n, C, K), write (N, n, C, V), keep (N, n, K, C), decay (N, n, K or 1, 1), state (N, K, V).

    A compiler gets the whole loop as one operator: unrolled it would be a graph of n steps, and another for each n.
    """
    if torch.compiler.is_compiling():
        out: Carried = _operator(erase, write, keep, decay, state, None, False)
        return out
    return _loop(erase, write, keep, decay, state)


def _loop(
    erase: Tensor,
    write: Tensor,
    keep: Tensor,
    decay: Tensor,
    state: Tensor,
    more: Tensor | None = None,
    backwards: bool = False,
) -> Carried:
    """As `carry`; more (N, n, K, V) is added to each state after its step, backwards starts with the last chunk."""
    added: Iterable[Tensor | None] = repeat(None) if more is None else more.unbind(1)
    turns = list(zip(*(t.unbind(1) for t in (erase, write, keep, decay)), added, strict=False))
    before, new = [], []
    for erased, written, kept, decayed, extra in reversed(turns) if backwards else turns:
        before.append(state)
        new.append(torch.baddbmm(written, erased, state, alpha=-1))  # (N, C, V)
        state = decayed * state if extra is None else torch.addcmul(extra, decayed, state)
        state = torch.baddbmm(state, kept, new[-1])  # (N, K, V)
    if backwards:
        before, new = before[::-1], new[::-1]
    return torch.stack(before, dim=1), torch.stack(new, dim=1), state


_operator = torch.library.custom_op(
    "explorer_attentions::carry",
    _loop,
    mutates_args=(),
    schema="(Tensor erase, Tensor write, Tensor keep, Tensor decay, Tensor state, Tensor? more, bool backwards)"
    " -> (Tensor, Tensor, Tensor)",
)


@_operator.register_fake
def _shapes(
    erase: Tensor, write: Tensor, keep: Tensor, decay: Tensor, state: Tensor, more: Tensor | None, backwards: bool
) -> Carried:
    heads, chunks = write.shape[:2]
    return state.new_empty(heads, chunks, *state.shape[1:]), torch.empty_like(write), torch.empty_like(state)


def _keep_for_backward(ctx, inputs, output):  # type: ignore[no-untyped-def]
    erase, _, keep, decay, *_ = inputs
    states, new, _ = output
    ctx.save_for_backward(erase, keep, decay, states, new)


def _backward(ctx, to_states: Tensor, to_new: Tensor, to_last: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
    """The gradient of a state is carried by the same loop, from the last chunk to the first."""
    erase, keep, decay, states, new = ctx.saved_tensors
    after, written, first = _operator(-keep.mT, to_new, -erase.mT, decay, to_last, to_states, True)
    decayed = (after * states).sum(-1, keepdim=True)
    decayed = decayed if decay.shape[-2] == states.shape[-2] else decayed.sum(-2, keepdim=True)
    return -written @ states.mT, written, after @ new.mT, decayed, first, None, None


torch.library.register_autograd(_operator, _backward, setup_context=_keep_for_backward)


def carry_cost(given: Mapping[str, Any], out: Any) -> OpCost:
    """Of the loop as one operator: for each chunk two products of C x K x V, and what is added and decayed."""
    heads, chunks, length, width = given["erase"].shape
    values = given["write"].shape[-1]
    return OpCost(
        matmul_flops=heads * chunks * 4 * length * width * values,
        cheap_ops=heads * chunks * (length + 2 * width) * values,
    )
