"""The tools one by one: on modules of bug reports, on a real CPU, where they fail, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.crosscheck import closed_form, flop_counter, with_fvcore, with_torchinfo
from explorer.cost.crosscheck.calls import Calls
from explorer.cost.crosscheck.check import crosscheck
from explorer.cost.crosscheck.one_pass import OnePass, one_pass
from explorer.cost.crosscheck.ours import Ours, ours_of
from explorer.cost.crosscheck.stage import Place, Stage
from explorer.cost.crosscheck.tool import Tool
from explorer.cost.crosscheck.tracing import traceable
from explorer.cost.ledger.rows import OpCost
from explorer.cost.ledger.trace import Trace
from explorer.registry.loading import load_registry
from explorer.registry.registry import CostRule, Origin
from explorer.report.crosscheck import terminal
from tests.cost.crosschecked import (
    BLOCK,
    CPU,
    FIXTURES,
    FVCORE,
    META,
    PAPERS,
    TORCHINFO,
    bare,
    checked,
    prefill,
    told,
)


class Tied(nn.Module):
    """A1: a table that is the head too."""

    def __init__(self, tie: bool) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(1000, 64), nn.Linear(64, 1000, bias=False)
        if tie:
            self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids))


class Pair(nn.Module):
    def __init__(self, relu: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), relu])

    def forward(self, x: Tensor) -> Tensor:
        first, second, relu = self.parts
        return second(relu(first(x)))


class OneRelu(nn.Module):
    """A2: three blocks that hold the same ReLU."""

    def __init__(self) -> None:
        super().__init__()
        relu = nn.ReLU()
        self.blocks = nn.ModuleList(Pair(relu) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def by_torchinfo(module: nn.Module, *inputs: Tensor) -> dict[str, Tool]:
    run = OnePass(module, inputs)
    with torch.inference_mode():
        with Calls() as calls:
            run.forward()
        params = sum(parameter.numel() for parameter in module.parameters())
        with Trace() as trace:
            run.forward()
        flops = trace.counts().matmul_flops
        tools = with_torchinfo.tools(run, calls, Ours(flops, flops, params))
    return {tool.quantity: tool for tool in tools}


@pytest.mark.parametrize(("tie", "right"), [(True, 64_000), (False, 128_000)])
def test_public_case_a1(tie: bool, right: int) -> None:
    """torchinfo says 128,000 either way."""
    found = by_torchinfo(Tied(tie), torch.zeros(1, 3, dtype=torch.int64))["params"]
    assert (found.printed, found.ours, found.explained) == (128_000, right, True)
    assert [reason.name for reason in found.reasons] == (["tied weights twice"] if tie else [])
    assert not replace(found, printed=127_999).explained


def test_public_case_a2() -> None:
    found = by_torchinfo(OneRelu(), torch.zeros(1, 4))["params"]
    assert (found.printed, found.ours, found.explained) == (160, 120, True)
    assert [reason.name for reason in found.reasons] == ["modules in several places twice"]
    assert not replace(found, printed=159).explained
    # In a block whose parts are called one by one it is right.
    check = checked(bare(dim=4, feedforward="shared_relu"), prefill(1))
    assert told(check, TORCHINFO, "params").gap == 0


def test_public_case_b12_with_a_bias() -> None:
    module = nn.Sequential(nn.Linear(64, 256)).to("meta")
    found = by_torchinfo(module, torch.empty(1, 22528, 64, device="meta"))["matmul_flops"]
    assert (found.printed, found.ours, found.explained) == (16_640, 2 * 369_098_752, True)
    assert {reason.name: reason.amount for reason in found.reasons} == {
        "sequence length ignored": 2 * (64 * 256 - 369_098_752),
        "biases and gains counted": 2 * 256,
    }


def test_fake_tensors_of_the_cpu_are_counted_as_real_ones() -> None:
    """The kernel that torch takes is the same, and so is what the mode does not know."""
    for phase in ("prefill", "train"):
        workload = Workload(phase, 2, 12, dtype="float32").settled()  # type: ignore[arg-type]
        plan = explorer.load(BLOCK).plan()
        run = one_pass(Stage(Place.of(plan, "block"), workload, "cpu"))
        with FlopCounterMode(display=False) as counter:
            run.all()
        assert told(checked(BLOCK, workload), CPU).printed == counter.get_total_flops()


def test_fvcore_sees_on_meta_what_it_sees_on_the_cpu() -> None:
    """Plain code, traced without any help: convolutions too, which torch does not trace on meta."""
    from fvcore.nn import FlopCountAnalysis

    module = nn.Sequential(nn.Conv1d(8, 8, 3, groups=4), nn.GELU(), nn.Linear(10, 6), nn.LayerNorm(6))
    with traceable():
        helped = FlopCountAnalysis(module.to("meta"), torch.empty(2, 8, 12, device="meta")).total()
    plain = FlopCountAnalysis(module.to_empty(device="cpu"), torch.empty(2, 8, 12)).tracer_warnings("none").total()
    assert helped == plain == 2 * 8 * 10 * 2 * 3 + 2 * 8 * 10 * 6 + 5 * 2 * 8 * 6


class Composed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensordot(x, self.weight, dims=1)


def test_an_operator_that_torch_composes_of_products_is_not_seen_by_fvcore() -> None:
    flops = 2 * 5 * 8 * 6
    run = OnePass(Composed().to("meta"), (torch.empty(5, 8, device="meta"),))
    ours = ours_of(run, flops, flops, 48, {})
    with torch.inference_mode(), Calls() as calls:
        out = run.forward()
    for tool in with_fvcore.tools(run, calls, calls.unread(out), ours):
        assert (tool.printed, tool.explained) == (0, True)
        assert [(reason.name, reason.amount) for reason in tool.reasons] == [("aten::tensordot not counted", -flops)]
        assert tool.note == "no handle for tensordot x1"


_LAB = torch.library.Library("crosscheck_lab", "DEF")
_LAB.define("mix(Tensor x, Tensor w) -> Tensor")
_LAB.impl("mix", lambda x, w: x @ w, "CompositeExplicitAutograd")
torch.library.register_fake("crosscheck_lab::mix", lambda x, w: x.new_empty(*x.shape[:-1], w.shape[-1]), lib=_LAB)


class Mixes(nn.Module):
    """One product by an operator of a plugin, one by a Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.linear = nn.Parameter(torch.empty(8, 6)), nn.Linear(6, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.ops.crosscheck_lab.mix(x, self.w))


def test_an_operator_of_a_plugin_is_explained_by_its_own_rule() -> None:
    flops, rest = 2 * 5 * 8 * 6, 2 * 5 * 6 * 6
    origin = Origin("lab", "lab", "1.0")
    rules = {"crosscheck_lab::mix": CostRule("crosscheck_lab::mix", lambda given, out: OpCost(flops), origin)}
    run = OnePass(Mixes().to("meta"), (torch.empty(5, 8, device="meta"),))
    ours = ours_of(run, flops + rest, flops + rest, 84, rules)
    with torch.inference_mode(), Calls() as calls:
        out = run.forward()
    tools = [
        *flop_counter.tools(META, run, ours),
        *with_fvcore.tools(run, calls, calls.unread(out), ours),
        *with_torchinfo.tools(run, calls, ours),
    ]
    for tool in tools:
        if tool.quantity == "matmul_flops":
            assert ("crosscheck_lab::mix not counted", -flops) in [(r.name, r.amount) for r in tool.reasons]
        assert tool.explained, tool
    # Without its rule the ledger counts 0 too, and the closed form cannot be asked.
    assert ours_of(run, rest, rest, 84, {}).custom == {}


def test_a_block_that_needs_values_is_not_run() -> None:
    loops = load_registry((str(FIXTURES / "loops_over_data.py"),))
    plan = explorer.load({"dim": 8, "heads": 2, "feedforward": "loops"}, registry=loops).plan()
    workload = prefill(4).settled()
    check = crosscheck(plan, "block", workload, matmul_flops=None, exact=None, params=1)
    assert check.tools == ()
    assert check.reason is not None
    assert check.reason.startswith("the block cannot be run on meta")


def test_a_tool_that_fails_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with traceable():  # it warns while it is imported
        from fvcore.nn import FlopCountAnalysis

    def fails(*args: Any) -> list[Tool]:
        raise AssertionError("a shape it does not expect")

    monkeypatch.setattr(FlopCountAnalysis, "total", fails)
    check = checked(BLOCK, prefill(4))
    tool = told(check, FVCORE)
    assert (tool.printed, tool.converted, tool.gap, tool.explained) == (None, None, None, None)
    assert check.unexplained == ()
    lines = terminal([check.to_dict()], width=80, color=False).splitlines()
    assert ["fvcore", "not", "checked", "–"] in [line.split() for line in lines]
    assert tool.note is not None
    assert tool.note.startswith("fails on this block: AssertionError: a shape it does not expect")
    assert told(check, META).printed == told(check, META).ours


@pytest.mark.parametrize("adapter", [flop_counter, with_fvcore, with_torchinfo, closed_form])
def test_a_fault_of_our_own_is_not_taken_for_a_tools(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> list[Tool]:
        raise ZeroDivisionError("our own bug")

    monkeypatch.setattr(adapter, "tools", fails)
    with pytest.raises(ZeroDivisionError, match="our own bug"):
        checked(BLOCK, prefill(4))


def test_a_broken_assumption_inside_of_a_tools_run_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Calls, "operator")
    with pytest.raises(AttributeError, match="'Calls' object has no attribute 'operator'"):
        checked(BLOCK, prefill(4))


def test_components_with_products_that_declare_nothing_are_named() -> None:
    check = checked(bare(heads=4, attention="no_cache", feedforward="one_linear"), prefill(4))
    assert told(check, PAPERS).note == "no closed form declared: attention 'no_cache', feedforward 'one_linear'"


MAPS = """
from torch import nn
from explorer import hookimpl

class Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(48, 48)

    def forward(self, x):
        return self.map(x)

def one_map(dim: int):
    return nn.Linear(dim, dim)

@hookimpl
def register_activations():
    return {"maps": Maps}

@hookimpl
def register_feedforwards():
    return {"one_map": one_map}
"""


def test_products_inside_of_a_declared_form_that_are_not_its_own_are_named(tmp_path: Path) -> None:
    plugin = tmp_path / "maps_lab.py"
    plugin.write_text(MAPS)
    fields = {**BLOCK, "activation": "maps", "residual": "mhc"}
    check = checked(fields, prefill(4), plugins=(str(plugin),))
    assert told(check, PAPERS).note == "no closed form declared: Maps in feedforward 'dense:hidden=48'"
    assert check.unexplained == ()
    check = checked({**fields, "activation": "gelu", "feedforward": "one_map"}, prefill(4), plugins=(str(plugin),))
    assert told(check, PAPERS).note == "no closed form declared: feedforward 'one_map'"


class _Lab(nn.Module):
    """Hooks of its owner, a buffer, and parts in different modes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(5), nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.dropout(F.relu(self.norm(self.first(x)))))


def _state(module: nn.Module) -> dict[str, Any]:
    hooks = {name: (dict(m._forward_hooks), dict(m._forward_pre_hooks)) for name, m in module.named_modules()}
    return {
        "places": {name: (id(t), str(t.device)) for name, t in module.state_dict(keep_vars=True).items()},
        "tensors": {name: t.detach().clone() for name, t in module.state_dict().items()},
        "modes": {name: m.training for name, m in module.named_modules()},
        "hooks": hooks,
        "grads": {name: p.grad for name, p in module.named_parameters()},
    }


def _global_state() -> dict[str, Any]:
    import torchinfo.torchinfo

    everywhere = nn.modules.module
    return {
        "rng": torch.get_rng_state().tolist(),
        "hooks": (dict(everywhere._global_forward_hooks), dict(everywhere._global_forward_pre_hooks)),
        "tensor": {name: vars(Tensor).get(name) for name in ("shape", "size", "numel", "nelement", "__len__")},
        "cached": dict(torchinfo.torchinfo._cached_forward_pass),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
    }


TOOLS: dict[str, Callable[[OnePass, Calls, set[int], Ours], list[Tool]]] = {
    "FlopCounterMode": lambda run, calls, unread, ours: flop_counter.tools(META, run, ours),
    "fvcore": with_fvcore.tools,
    "torchinfo": lambda run, calls, unread, ours: with_torchinfo.tools(run, calls, ours),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_leaves_the_module_as_it_was(tool: str) -> None:
    """Parameters, buffers, device, modes of each part, hooks and random numbers; evaluation moves no statistics."""
    module = _Lab()
    module.norm.eval()
    module.first.register_forward_hook(lambda *args: None)
    run = OnePass(module, (torch.randn(2, 5, 8),))
    with torch.no_grad(), Calls() as calls:
        out = run.forward()
    before, around = _state(module), _global_state()
    TOOLS[tool](run, calls, calls.unread(out), Ours(0, 0, 0))
    after = _state(module)
    torch.testing.assert_close(after.pop("tensors"), before.pop("tensors"), rtol=0, atol=0)
    assert after == before
    assert _global_state() == around


def test_a_cross_check_leaves_nothing_behind() -> None:
    mixture = {"moe": {"experts": 4, "top_k": 2, "hidden": 16}}
    fields = {**BLOCK, "feedforward": mixture, "residual": "attnres", "attention": "kda"}
    checked(fields, Workload("train", 1, 4, dtype="float32"))
    around = _global_state()
    checked(fields, Workload("train", 1, 4, dtype="float32"))
    assert _global_state() == around
