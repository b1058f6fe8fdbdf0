"""A reference walk: a model called part by part, as its forward does it, with what Python holds beside each part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from explorer.assembly.model import Model
from explorer.assembly.sublayer import Sublayer
from explorer.assembly.wiring import Pass
from explorer.cost.memory.activations import Activations
from explorer.cost.memory.live import working_set
from explorer.cost.memory.saved import saved_by
from explorer.cost.parts.storages import address
from explorer.cost.parts.trees import tensors_in

Look = Callable[[Callable[[Any], Any], Any, Any], Any]
"""(call, inputs, what is held beside them) -> outputs."""


def no_layer(inputs: Any) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class InARow:
    """Calls `look` for each part, and enters `layer` around those of a layer with all that comes into it."""

    look: Look
    layer: Callable[[Any], AbstractContextManager[Any]] = no_layer

    def model(self, model, ids, source=None, cache=None):
        table = model.embedding
        offset = 0 if cache is None else cache.offset
        x = self._embed(model.stack, table, ids, offset, source)
        read = None
        if source is not None:
            inner = self._embed(model.encoder, table, source, 0, [ids, x])
            read = self._stack(model.encoder, inner, Pass(ids=source if table else None), [ids, source, x])
        context = model.stack.intake.context(x, read, cache)
        run = Pass(context, cache=cache, ids=ids if table else None)
        h = self._stack(model.stack, x, run, [ids, source, read])
        if cache is not None:
            cache.advance(ids.shape[1])
        return h if model.head is None else self.look(model.head, h, [ids, source, read, x])

    def block(self, module, x, context=None):
        return self._stack(module.stack, x, Pass(context), [])

    def _embed(self, stack, table, ids, offset, beside):
        return self.look(lambda ids: stack.embed(ids, table, offset), ids, beside)

    def _stack(self, stack, x, run, beside):
        beside = [beside, x, run.context]
        state = x
        for first in stack._enter:
            state = self.look(first.enter, x, beside)
        for layer in stack.layers:
            before = state
            with self.layer([before, run.context, run.shared]):
                for site in layer.parts():
                    around = self._site if isinstance(site, Sublayer) else self._parallel
                    state = around(site, state, run, [beside, before, run.shared])
        if stack.leave is not None:
            state = self.look(stack.leave.leave, state, beside)
        return state if stack.final_norm is None else self.look(stack.final_norm, state, beside)

    def _site(self, site, state, run, beside):
        def inner(x, beside):
            return self._branch(site.branch, site.wiring, site.dropout, site.training, x, run, beside)

        return self._around(site, state, beside, inner)

    def _parallel(self, site, state, run, beside):
        def inner(x, beside):
            outputs = []
            for name, sublayer in site.sublayers.items():
                wiring, dropout = site.calls[name]
                held = [beside, x, outputs]
                own = self.look(site.norms[name], x, held) if name in site.norms else x
                outputs.append(self._branch(sublayer, wiring, dropout, site.training, own, run, held))
            total = outputs[0]
            for y in outputs[1:]:
                total = self.look(lambda pair: pair[0] + pair[1], [total, y], [beside, x, outputs, own])
            return total

        return self._around(site, state, beside, inner)

    def _around(self, site, before, beside, inner):
        x, state = self.look(site.residual.read, before, beside)
        if site.norm is not None:
            x = self.look(site.norm, x, [beside, before, state])
        y = inner(x, [beside, before, state])
        if site.norm_out is not None:
            y = self.look(site.norm_out, y, [beside, before, state, x])
        state = self.look(lambda pair: site.residual.write(*pair), [state, y], [beside, before, x])
        return state if site.norm_post is None else self.look(site.norm_post, state, [beside, before, x, y])

    def _branch(self, branch, wiring, dropout, training, x, run, beside):
        offered = wiring.inputs(run)
        view = {"cache": offered.pop("cache")} if "cache" in offered else {}

        def call(given):
            return branch(**given, **view), given.get("shared")

        y, shared = self.look(call, {**offered, "x": x}, beside)
        run.shared.update(shared or {})
        return self.look(lambda y: F.dropout(y, dropout, training), y, [beside, x]) if dropout else y


def held(*trees: Any) -> int:
    """Bytes of all distinct storages in trees."""
    sizes = {address(tensor): tensor.untyped_storage().nbytes() for tensor in tensors_in(trees)}
    return sum(sizes.values())


def walk(row: InARow, module: Any, *inputs: Any, **named: Any) -> Any:
    return (row.model if isinstance(module, Model) else row.block)(module, *inputs, **named)


@dataclass
class _Step:
    """One part: the keys of the tensors with gradients that came in and that went out, and its working set."""

    came: dict[Any, int]
    went: dict[Any, int]
    working: int


@dataclass
class Trained:
    """Activations of a module on some inputs, part by part; for `backward` also working sets with gradients."""

    recompute: str = "none"
    watch: bool = False
    sum: Activations = field(init=False)
    _places: dict[int, int] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)  # so that no address comes back
    _steps: list[_Step] = field(default_factory=list)

    def __post_init__(self):
        self.sum = Activations(self.recompute)

    def run(self, module, *inputs, **named):
        walk(InARow(self._look, self._layer), module, *inputs, **named)
        return self

    @property
    def backward(self) -> int:
        """The most of a part's working set and the gradients that wait beside it."""
        most, made = 0, {}
        for at, step in enumerate(self._steps):
            later = {key for other in self._steps[at + 1 :] for key in other.came}
            waiting = sum(nbytes for key, nbytes in made.items() if key in later)
            most = max(most, step.working + waiting)
            made.update(step.went)
        return most

    def _look(self, call, inputs, beside):
        self._alive.append(inputs)
        saved = saved_by(call, inputs)
        places = self.sum.add(saved, self._of(inputs))
        for tensor, place in zip(tensors_in(saved.out), places, strict=True):
            if place is not None:
                self._places[address(tensor)] = place
        self._alive.append(saved.out)
        if self.watch:
            self._steps.append(_Step(_keys(inputs), _keys(saved.out), working_set(call, inputs, grad=True)))
        return saved.out

    @contextmanager
    def _layer(self, inputs):
        with self.sum.layer(self._of(inputs)):
            yield

    def _of(self, tree):
        for tensor in tensors_in(tree):
            if address(tensor) not in self._places:
                self._alive.append(tensor)
                self._places[address(tensor)] = self.sum.storage(tensor.untyped_storage().nbytes())
        return [self._places[address(tensor)] for tensor in tensors_in(tree)]


def _keys(tree: Any) -> dict[Any, int]:
    """By what makes a tensor itself, the bytes of its gradient."""
    return {
        (address(t), t.storage_offset(), t.shape, t.stride(), t.dtype): t.numel() * t.itemsize
        for t in tensors_in(tree)
        if t.requires_grad
    }


@torch.no_grad()
def forward_need(module: Any, *inputs: Any, cache: Any = None, **named: Any) -> int:
    """The most bytes alive in a forward without gradients, inputs included, the cache apart."""
    most = [0]

    def look(call, inputs, beside):
        again = no_cache if cache is None else cache.timing_mark()
        most[0] = max(most[0], held(inputs, beside) + working_set(call, inputs))
        again()
        return call(inputs)

    walk(InARow(look), module, *inputs, **({} if cache is None else {"cache": cache}), **named)
    return most[0]


def no_cache() -> None:
    """Nothing to take back."""
