"""What a plan costs: parameters, matrix products, cache and weight bytes of its blocks and of the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from explorer.assembly.build import build_block, build_model
from explorer.assembly.head import LmHead
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.positions import Positions
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.blueprint.workload import STORED_BYTES, Workload
from explorer.cost.observing import active, dtype_of, growth, observe
from explorer.cost.walk import Subject
from explorer.errors import RefusedError, UsageError


@dataclass(frozen=True)
class BlockParams:
    """Parameters of one layer of a block; layers: how many layers of the stack are of it."""

    name: str
    layers: int
    params: int


@dataclass(frozen=True)
class Params:
    """Distinct parameters. model, active, shared: None, None, 0 for a block alone (active is then the block's).

    active: used for one token; None with the reason where that cannot be observed. shared: counted once, used again.
    """

    blocks: tuple[BlockParams, ...]
    model: int | None
    active: int | None
    active_reason: str | None
    shared: int

    @property
    def block(self) -> int | None:
        """Parameters of a layer, where all layers have as many."""
        sizes = {block.params for block in self.blocks if block.layers}
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True)
class Cost:
    """One scope on one workload. FLOPs: 1 multiply-add = 2, matrix products only; train is forward and backward.

    kv_*: None with the reason where the cache cannot be observed. Bytes as in the workload's dtypes.
    """

    workload: Workload
    scope: str
    name: str
    matmul_flops: int
    matmul_flops_exact: int | None
    weight_bytes: int
    kv_bytes_per_token: int | None
    kv_bytes_per_token_full_windows: int | None
    kv_cache_bytes: int | None
    incomplete: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Counted:
    """Everything counted for one plan."""

    params: Params
    costs: tuple[Cost, ...]


def count(plan: ModelPlan, workloads: Sequence[Workload]) -> Counted:
    """Count a plan on meta, for each workload its blocks and, where the plan is a whole model, the model.

    Raises: RefusedError where a component or the combination refuses, or a workload cannot run on the plan.
    """
    counter = _Counter(plan)
    settled = [counter.settled(workload) for workload in workloads]
    return Counted(counter.params(), tuple(cost for workload in settled for cost in counter.costs(workload)))


@dataclass(frozen=True)
class _Part:
    """A block of a stack."""

    stack: StackPlan
    name: str
    layers: int

    @property
    def label(self) -> str:
        return self.stack.label(self.name)

    @property
    def caches(self) -> bool:
        """An encoder, and a block that is not causal, keep nothing."""
        return self.stack.name != "encoder" and self.stack.blocks[self.name].causal


class _Counter:
    """Counts one plan; modules are built once per dtype."""

    def __init__(self, plan: ModelPlan):
        self.plan = plan
        self.parts = [_Part(stack, name, layers) for stack in plan.stacks for name, layers in stack.counts.items()]
        self._modules: dict[tuple[str, str], Subject] = {}
        self._growths: dict[tuple[str, str], tuple[int, int]] = {}

    def settled(self, workload: Workload) -> Workload:
        try:
            full = workload.settled(self._longest, encoder=self.plan.encoder is not None)
        except UsageError as error:
            raise RefusedError(str(error)) from error
        decoders = [part for part in self.parts if part.stack is self.plan.stack]
        if full.phase == "decode" and not all(part.caches for part in decoders):
            raise RefusedError("workload: decode needs a causal stack; with `causal: false` there is no next token")
        return full

    def params(self) -> Params:
        blocks = tuple(BlockParams(p.label, p.layers, _numel(_own(self.block(p).module))) for p in self.parts)
        if not self.plan.whole:
            used, reason = active(self.block(self.parts[0])) if len(self.parts) == 1 else (None, _SEVERAL)
            return Params(blocks, None, used, reason, 0)
        model = self.model().module
        assert isinstance(model, Model), model
        used, reason = active(self.model())
        return Params(blocks, _numel(model), used, reason, _shared(model))

    def costs(self, workload: Workload) -> Iterator[Cost]:
        for part in self.parts:
            yield self._block_cost(part, workload)
        if self.plan.whole:
            yield self._model_cost(workload)

    def block(self, part: _Part, dtype: str = "bfloat16") -> Subject:
        key = part.label, dtype
        if key not in self._modules:
            module = build_block(self.plan, part.label, device="meta", dtype=dtype_of(dtype))
            self._modules[key] = self._subject(module, part.caches, dtype)
        return self._modules[key]

    def model(self, dtype: str = "bfloat16") -> Subject:
        key = "", dtype
        if key not in self._modules:
            module = build_model(self.plan, device="meta", dtype=dtype_of(dtype))
            caches = all(part.caches for part in self.parts if part.stack is self.plan.stack)
            self._modules[key] = self._subject(module, caches, dtype)
        return self._modules[key]

    def _subject(self, module: Model | BlockModule, caches: bool, dtype: str) -> Subject:
        kept = caches and "cache" not in module.stack.intake.limits
        return Subject(module, self.plan, kept, dtype_of(dtype))

    @cached_property
    def _longest(self) -> int | None:
        """The shortest learned position table."""
        with torch.device("meta"):
            positions = [Positions(self.plan.dim).embedding(stack.base) for stack in self.plan.stacks]
        return min((p.max_tokens for p in positions if p is not None and p.max_tokens is not None), default=None)

    def _block_cost(self, part: _Part, workload: Workload) -> Cost:
        subject = self.block(part, workload.dtype)
        weights = _weight_bytes(_own(subject.module), subject.dtype, workload)
        if part.stack.name == "encoder" and workload.phase == "decode":
            # Decode runs no encoder: what it made stands in the decoder's cache.
            return Cost(workload, "block", part.label, 0, 0, weights, 0, 0, 0, (), ())
        of_encoder = part.stack.name == "encoder" and workload.source is not None
        run = _on_source(workload) if of_encoder else workload
        return self._cost(subject, run, workload, "block", part.label, weights, self._kv([part], workload))

    def _model_cost(self, workload: Workload) -> Cost:
        subject = self.model(workload.dtype)
        weights = _weight_bytes(subject.module, subject.dtype, workload)
        parts = [part for part in self.parts if part.layers]
        return self._cost(subject, workload, workload, "model", self._name, weights, self._kv(parts, workload, True))

    _name = "model"

    def _cost(
        self, subject: Subject, run: Workload, shown: Workload, scope: str, name: str, weights: int,
        kv: tuple[int, int] | str,
    ) -> Cost:
        observed = observe(subject, run)
        counts = observed.counts
        notes = [f"matmul_flops_exact: {counts.exact_reason}"] if counts.exact_reason else []
        notes += [f"kv: {kv}"] if isinstance(kv, str) else []
        open_windows, full_windows = (None, None) if isinstance(kv, str) else kv
        return Cost(
            shown, scope, name, counts.matmul_flops, counts.matmul_flops_exact, weights, open_windows, full_windows,
            None if isinstance(kv, str) else observed.cache_bytes, counts.incomplete, tuple(notes),
        )

    def _kv(self, parts: Iterable[_Part], workload: Workload, times_layers: bool = False) -> tuple[int, int] | str:
        """Growth per token, windows open and full; or why it cannot be observed."""
        growths = []
        for part in parts:
            subject = self.block(part, workload.dtype)
            if part.caches and not subject.caches:
                return subject.module.stack.intake.limits["cache"]
            growths.append([n * (part.layers if times_layers else 1) for n in self._growth(part, subject, workload)])
        return sum(g[0] for g in growths), sum(g[1] for g in growths)

    def _growth(self, part: _Part, subject: Subject, workload: Workload) -> tuple[int, int]:
        assert workload.kv_dtype is not None, workload
        key = part.label, workload.kv_dtype
        if key not in self._growths:
            window = part.stack.blocks[part.name].window
            opened = growth(subject, 0, workload.kv_dtype)
            self._growths[key] = opened, growth(subject, window, workload.kv_dtype) if window else opened
        return self._growths[key]


_SEVERAL = "there are several blocks and no model: write `layers`"


def _on_source(workload: Workload) -> Workload:
    """The workload as an encoder sees it: its tokens are the source's."""
    return Workload(**{**vars(workload), "tokens": workload.source, "context": workload.source})


def _own(module: nn.Module) -> nn.Module:
    """The layer of a block module without what belongs to the model."""
    return module.block if isinstance(module, BlockModule) else module


def _numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _shared(model: Model) -> int:
    """Parameters that stand in two places and count once: a tied head's table, weights under two names."""
    everywhere = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))
    tied = model.head.tied[0] if isinstance(model.head, LmHead) else None
    return everywhere - _numel(model) + (0 if tied is None else _numel(tied))


def _weight_bytes(module: nn.Module, dtype: torch.dtype, workload: Workload) -> int:
    """Bytes of the weights: those of the module's own dtype as `weight_dtype` says, others as they are."""
    stored = STORED_BYTES[workload.weight_dtype or workload.dtype]
    return sum(p.numel() * (stored if p.dtype == dtype else p.itemsize) for p in module.parameters())
