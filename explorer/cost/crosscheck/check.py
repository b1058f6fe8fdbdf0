"""What other counters print for one block of a plan on one workload, each difference with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.crosscheck import closed_form, flop_counter, with_fvcore, with_torchinfo
from explorer.cost.crosscheck.calls import Calls
from explorer.cost.crosscheck.one_pass import OnePass, one_pass
from explorer.cost.crosscheck.ours import Ours, ours_of
from explorer.cost.crosscheck.stage import Place, Stage
from explorer.cost.crosscheck.tool import Tool
from explorer.cost.memory.fake import fake_cpu
from explorer.cost.parts.failures import CannotRun, foreign
from explorer.errors import ExplorerError
from explorer.registry.registry import CostRule


@dataclass(frozen=True)
class CrossCheck:
    """All tools on one block. reason: why none ran."""

    name: str
    workload: Workload
    tools: tuple[Tool, ...]
    reason: str | None = None

    @property
    def unexplained(self) -> tuple[Tool, ...]:
        """Tools whose numbers do not follow from ours and the known reasons."""
        return tuple(tool for tool in self.tools if tool.explained is False)

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of a result."""
        return {
            "scope": "block",
            "name": self.name,
            "workload": self.workload.to_dict(),
            "tools": [tool.to_dict() for tool in self.tools],
            "reason": self.reason,
        }


def crosscheck(
    plan: ModelPlan,
    name: str,
    workload: Workload,
    *,
    matmul_flops: int | None,
    exact: int | None,
    params: int | None,
    rules: Mapping[str, CostRule] | None = None,
) -> CrossCheck:
    """Run every tool on the last layer of a block, in one pass of a settled workload.

    name: of the block, as in reports. matmul_flops, exact, params: what is counted here for the same layer and pass.
    rules: what plugins say of operators of their own. Modules are built for the tools alone: nothing of the caller's is
    touched. A tool that cannot run says why in its note; where the pass itself cannot run, there are none.

    Raises: UsageError where no block is called so.
    """
    place = Place.of(plan, name)
    if place.in_encoder and workload.source_is_cached:
        return CrossCheck(name, workload, (), "the encoder does not run: the cache holds what the decoder reads of it")
    here = workload.of_source() if place.in_encoder else workload
    try:
        with foreign():
            stage = Stage(place, here, "meta")
            run = one_pass(stage)
            ours = ours_of(run, matmul_flops, exact, params, rules or {})
    except ExplorerError as error:
        return CrossCheck(name, workload, (), str(error))
    except CannotRun as error:
        return CrossCheck(name, workload, (), f"the block cannot be run on meta: {error}")
    return CrossCheck(name, workload, tuple(_Tools(stage, run, ours).all()))


@dataclass(frozen=True)
class _Tools:
    stage: Stage
    run: OnePass
    ours: Ours

    def all(self) -> list[Tool]:
        run, ours = self.run, self.ours
        found = self._run(_META, lambda: flop_counter.tools(flop_counter.META, run, ours))
        return [*found, *self._run(_CPU, self._on_cpu), *self._as_written()]

    def _on_cpu(self) -> list[Tool]:
        with fake_cpu():
            with foreign():
                run = one_pass(Stage(self.stage.place, self.stage.workload, "cpu"))
            return flop_counter.tools(flop_counter.CPU, run, self.ours)

    def _as_written(self) -> list[Tool]:
        """The tools that see what a module calls before torch takes it apart, and the closed form."""
        # Built anew: what is made in inference mode cannot be used outside.
        ours, stage = self.ours, Stage(self.stage.place, self.stage.workload, self.stage.device)
        calls = Calls()
        try:
            with torch.inference_mode():
                with foreign():
                    written = one_pass(stage)
                    with calls:
                        out = written.forward()
                modules = self._run(_TORCHINFO, lambda: with_torchinfo.tools(written, calls, ours))
        except CannotRun as error:
            return [self._failed(named, error) for named in (_FVCORE, _TORCHINFO, _PAPERS)]
        unread = calls.unread(out)
        # Positions are no part of the layer: the tracer takes their tables for constants, which have no gradient.
        self.stage.stack.positions.requires_grad_(False)
        traced = self._run(_FVCORE, lambda: with_fvcore.tools(self.run, calls, unread, ours))
        return [*traced, *modules, *self._run(_PAPERS, lambda: closed_form.tools(stage, calls, ours))]

    def _run(self, named: Named, tool: Callable[[], list[Tool]]) -> list[Tool]:
        """What a tool says, or that it fails on this block: its own code, or torch's that it builds on."""
        try:
            return tool()
        except CannotRun as error:
            return [self._failed(named, error)]

    def _failed(self, named: Named, error: CannotRun) -> Tool:
        name, unit, release = named
        note = f"fails on this block: {error}"
        return Tool(name, release(), "matmul_flops", unit, 1, None, self.ours.matmul_flops, note=note, failed=True)


Named = tuple[str, str, Callable[[], str]]
"""A tool's name, its unit, and its release."""

_META: Named = (flop_counter.META, "FLOP", lambda: flop_counter.VERSION)
_CPU: Named = (flop_counter.CPU, "FLOP", lambda: flop_counter.VERSION)
_FVCORE: Named = (with_fvcore.NAME, with_fvcore.UNIT, lambda: version("fvcore"))
_TORCHINFO: Named = (with_torchinfo.NAME, with_torchinfo.UNIT, lambda: version("torchinfo"))
_PAPERS: Named = (closed_form.NAME, "FLOP", lambda: closed_form.VERSION)
