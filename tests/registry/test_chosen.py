"""A component with its parameters: building it from a block's menu, blame when that fails, its written forms."""

from typing import Annotated, Literal

import pytest
import torch
from annotated_types import Ge
from torch import nn

from explorer import Activation, Norm, PluginError, RefusedError, Site, Width
from explorer.blueprint.options import value_node
from explorer.blueprint.tree import plain
from explorer.errors import NOWHERE, Where
from explorer.registry.chosen import Chosen
from explorer.registry.kinds import KINDS
from explorer.registry.registry import Component, Origin

ORIGIN = Origin("lab", "lab-dist", "1.2")
HERE = Where("block.yaml", 7, 3)
INNER = Where("block.yaml", 9, 5)


class Kept(nn.Module):
    """Keeps what its constructor got."""

    def __init__(self, **got):
        super().__init__()
        self.got = got


class Mean(nn.Module):
    def __init__(self, dim: int, *, eps: float = 1e-6, affine: bool = True):
        super().__init__()
        self.got = {"dim": dim, "eps": eps, "affine": affine}


def attention(
    dim,
    bias,
    window,
    *,
    kv_heads: Annotated[int, Ge(1)],
    scale: float | None = None,
    qk_norm: Norm | None = None,
    gate: Activation = "square",
    hidden: Width = 4,
    dims: list[int] = (),
    note: str = "",
):
    return Kept(**locals())


def component(constructor, kind="attention", name="mine"):
    return Component(KINDS[kind], name, constructor, ORIGIN)


def chosen(constructor, kind="attention", where=HERE, name="mine", **params):
    return Chosen(component(constructor, kind, name), params, where, dict.fromkeys(params, INNER))


MENU = {"dim": 16, "heads": 4, "head_dim": 4, "causal": True, "window": 8, "bias": False, "dropout": 0.0}


def test_a_constructor_gets_the_menu_names_it_takes_and_its_parameters():
    got = chosen(attention, kv_heads=2, scale=0.5).build(MENU).got
    assert (got["dim"], got["bias"], got["window"]) == (16, False, 8)
    assert (got["kv_heads"], got["scale"], got["qk_norm"], got["note"]) == (2, 0.5, None, "")


@pytest.mark.parametrize(("own", "given"), [({}, False), ({"bias": "qkv"}, "qkv"), ({"bias": True}, True)])
def test_its_own_bias_wins_over_the_blocks(own, given):
    assert chosen(attention, kv_heads=2, **own).build(MENU).got["bias"] == given


def test_a_default_written_plainly_becomes_the_object_that_the_constructor_wants():
    assert chosen(attention, kv_heads=2).build(MENU).got["hidden"] == Width(number=4)
    written = {"ratio": "8/3", "multiple_of": 8}
    assert chosen(attention, kv_heads=2, hidden=written).build(MENU).got["hidden"].of(16) == 48


def test_a_nested_component_becomes_a_maker():
    norm = chosen(Mean, "norm", eps=0.5)
    made = chosen(attention, kv_heads=2, qk_norm=norm).build(MENU).got["qk_norm"](4)
    assert made.got == {"dim": 4, "eps": 0.5, "affine": True}
    assert norm.maker()(3) is not norm.maker()(3)


def test_a_constructor_that_changes_its_list_does_not_change_the_choice():
    def grows(*, dims: list[int]):
        dims.append(3)
        return Kept(dims=dims)

    choice = chosen(grows, dims=[1, 2])
    assert choice.build({}).got == choice.build({}).got == {"dims": [1, 2, 3]}


def test_nothing_is_built_of_none():
    none = chosen(None, name="none")
    assert none.is_none
    assert none.build({}) is None
    assert (none.plain(), none.short(), none.picks) == ({"none": {}}, "none", frozenset())


# Failures ------------------------------------------------------------------------------------------------------------


def raising(error):
    def constructor(dim, *, groups: int = 3):
        raise error

    return constructor


def larger(*sizes):
    def constructor():
        return nn.Linear(*sizes)

    return constructor


REFUSED = [  # constructor, part of the message
    (raising(ValueError("dim 16 must divide by groups 3")), "norm 'mine:groups=3': dim 16 must divide by groups 3"),
    (raising(ValueError()), "norm 'mine:groups=3': it gives no reason"),
    (raising(RefusedError("write `layers`")), "norm 'mine:groups=3': write `layers`"),
    (raising(OverflowError("int too large to convert to float")), "its sizes cannot be built: int too large"),
    (lambda: nn.Linear(2**40, 2**40, device="meta"), "norm 'mine': its sizes cannot be built: Storage size"),
    (lambda: nn.Linear(2**70, 2, device="meta"), "its sizes cannot be built: "),
    (lambda: nn.Linear(-1, 2, device="meta"), "its sizes cannot be built: Trying to create tensor with negative"),
]


@pytest.mark.parametrize(("constructor", "message"), REFUSED)
def test_sizes_that_a_constructor_refuses_are_an_error_with_the_place(constructor, message):
    params = {"groups": 3} if constructor.__name__ == "constructor" else {}
    with pytest.raises(RefusedError) as caught:
        chosen(constructor, "norm", **params).build({"dim": 16})
    assert message in caught.value.message
    where = INNER if "by groups" in message else HERE  # a parameter that the reason names, else the component
    assert caught.value.where == where
    assert str(caught.value).startswith(f"{where}: norm 'mine")


FAULTS = [  # error that a constructor raises, how it is told
    (TypeError("unsupported operand"), "TypeError: unsupported operand"),
    (KeyError("eps"), "KeyError: 'eps'"),
    (AssertionError("dim"), "AssertionError: dim"),
    (NotImplementedError("later"), "NotImplementedError: later"),
    (RecursionError("too deep"), "RecursionError: too deep"),
    (RuntimeError("shape '[3, 4]' is invalid for input of size 10"), "RuntimeError: shape '[3, 4]' is invalid"),
    (ImportError("no triton"), "ImportError: no triton"),
    (SystemExit(3), "SystemExit: 3"),
]


@pytest.mark.parametrize(("error", "told"), FAULTS)
def test_any_other_exception_is_the_plugins_fault(error, told):
    with pytest.raises(PluginError) as caught:
        chosen(raising(error), "norm", groups=5).build({"dim": 16})
    assert f"norm 'mine:groups=5' of lab-dist 1.2 (lab) failed to build: {told}" in str(caught.value)
    assert caught.value.__cause__ is error


def test_an_interrupt_is_nobodys_fault():
    with pytest.raises(KeyboardInterrupt):
        chosen(raising(KeyboardInterrupt()), "norm").build({"dim": 16})


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("lazy", [lambda: nn.LazyLinear(4), lambda: nn.LazyBatchNorm1d(affine=False)])
def test_a_size_that_only_an_input_decides_is_a_fault(lazy):
    message = "norm 'mine' of lab-dist 1.2 (lab): lazy parameters have no size to count"
    with pytest.raises(PluginError) as caught:
        chosen(lambda dim: nn.Sequential(lazy()), "norm").build({"dim": 16})
    assert str(caught.value) == message


def test_the_line_to_look_at_is_the_plugins_own():
    def careless(dim):
        return nn.Linear("wide", dim)  # raises inside torch

    with pytest.raises(PluginError, match=rf"\({__file__}:{careless.__code__.co_firstlineno + 1}\)$"):
        chosen(careless, "norm").build({"dim": 16})


MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried ..."),
]


@pytest.mark.parametrize("error", MEMORY)
def test_running_out_of_memory_is_nobodys_fault(error):
    with pytest.raises(type(error)) as caught:
        chosen(raising(error), "norm").build({"dim": 16})
    assert caught.value is error


@pytest.mark.parametrize("built", [None, 3, Mean, torch.ones(2)])
def test_a_constructor_must_build_a_module(built):
    with pytest.raises(PluginError, match=r"norm 'mine' of lab-dist 1.2 \(lab\) must build an nn.Module, not"):
        chosen(lambda dim: built, "norm").build({"dim": 16})


def with_norm(dim, *, qk_norm: Norm):
    return Kept(norm=qk_norm(dim))


def test_a_nested_refusal_has_the_nested_place():
    inner = chosen(raising(ValueError("dim 16 must divide by groups 3")), "norm", INNER, name="inner")
    with pytest.raises(RefusedError) as caught:
        chosen(with_norm, qk_norm=inner).build(MENU)
    assert caught.value.where == INNER
    assert caught.value.message == "attention 'mine:qk_norm=inner': norm 'inner': dim 16 must divide by groups 3"


def test_a_refusal_without_a_place_gets_that_of_the_component_around_it():
    inner = chosen(raising(ValueError("no")), "norm", NOWHERE)
    with pytest.raises(RefusedError) as caught:
        chosen(with_norm, qk_norm=inner).build(MENU)
    assert caught.value.where == HERE


def test_a_nested_fault_blames_the_nested_component_only():
    other = Component(KINDS["norm"], "inner", raising(TypeError("no")), Origin("other", "other-dist", "3"))
    with pytest.raises(
        PluginError,
        match=r"^norm 'inner' of other-dist 3 \(other\) failed to build: TypeError: no \(.*test_chosen.py:\d+\)$",
    ):
        chosen(with_norm, qk_norm=Chosen(other)).build(MENU)


@pytest.mark.parametrize("values", [(), (16, 4)])
def test_a_maker_takes_what_its_kind_is_made_with(values):
    def careless(dim, *, qk_norm: Norm):
        return Kept(norm=qk_norm(*values))

    with pytest.raises(PluginError, match=r"attention 'mine:.*TypeError: the maker .* kind norm takes \(dim\), not"):
        chosen(careless, qk_norm=chosen(Mean, "norm")).build(MENU)


def test_depth_that_no_blueprint_writes_is_refused_with_the_residuals_place():
    def deep(site):
        return Kept(depth=site.layers)

    site = Site(index=0, total=2, sublayer=0, sublayers=2, layer=0, layers=None)
    with pytest.raises(RefusedError, match="residual 'mine': it depends on the depth of the model: write `layers`"):
        chosen(deep, "residual").build({"dim": 16, "site": site})
    assert chosen(deep, "residual").build({"site": Site(0, 2, 0, 2, 0, 12)}).got == {"depth": 12}


def test_the_end_of_a_stack_is_a_site_of_its_own():
    assert [Site(index, 2, 0, 2, 0, 1).end for index in range(3)] == [False, False, True]


# Activations ---------------------------------------------------------------------------------------------------------


def activation(forward):
    return type("Act", (nn.Module,), {"forward": forward})


def one(self, x): ...


def optional(self, x, scale=1.0): ...


def gated(self, gate, up): ...


def keyword(self, gate, *, up): ...


def three(self, a, b, c): ...


@pytest.mark.parametrize(("forward", "inputs"), [(one, 1), (optional, 1), (gated, 2), (keyword, 2), (three, 3)])
def test_inputs_is_the_number_of_tensors_that_forward_requires(forward, inputs):
    assert chosen(activation(forward), "activation").maker().inputs == inputs


@pytest.mark.parametrize("forward", [lambda self: None, lambda self, *xs: None, lambda self, x=None: None])
def test_a_forward_that_does_not_say_its_inputs_is_a_fault(forward):
    maker = chosen(activation(forward), "activation").maker()
    with pytest.raises(PluginError, match=r"activation 'mine' of lab-dist 1.2 \(lab\): forward must name the tensors"):
        _ = maker.inputs


def test_a_module_without_forward_is_a_fault():
    with pytest.raises(PluginError, match="forward must name the tensors it takes"):
        _ = chosen(type("Act", (nn.Module,), {}), "activation").maker().inputs


# Written forms -------------------------------------------------------------------------------------------------------


def shared(choice):
    return Chosen(Component(KINDS["norm"], "mine", Mean, ORIGIN, shared=True), choice.params, HERE, choice.places)


SHORT = [  # parameters, the command line's form
    ({}, "mine"),
    ({"kv_heads": 8}, "mine:kv_heads=8"),
    ({"kv_heads": 8, "scale": 1e-05}, "mine:kv_heads=8:scale=1e-05"),
    ({"scale": None, "bias": True}, "mine:scale=null:bias=true"),
    ({"hidden": {"ratio": "8/3", "multiple_of": 64}}, "mine:hidden={ratio: 8/3, multiple_of: 64}"),
    ({"dims": [1, 2]}, "mine:dims=[1, 2]"),
    ({"dims": (1, 2)}, "mine:dims=[1, 2]"),
    ({"note": "a word"}, 'mine:note="a word"'),
    ({"note": "a:b,c"}, 'mine:note="a:b,c"'),
    ({"note": "true"}, 'mine:note="true"'),
    ({"note": "1e5"}, 'mine:note="1e5"'),
    ({"note": ""}, 'mine:note=""'),
    ({"note": 'say "no"'}, 'mine:note="say \\"no\\""'),
    ({"note": "größe"}, 'mine:note="größe"'),
    ({"qk_norm": chosen(Mean, "norm")}, "mine:qk_norm=mine"),
    ({"qk_norm": chosen(Mean, "norm", eps=0.5)}, "mine:qk_norm={mine: {eps: 0.5}}"),
    ({"qk_norm": shared(chosen(Mean, "norm"))}, 'mine:qk_norm="lab:mine"'),
    ({"qk_norm": shared(chosen(Mean, "norm", eps=0.5))}, "mine:qk_norm={lab:mine: {eps: 0.5}}"),
]


@pytest.mark.parametrize(("params", "text"), SHORT)
def test_short_form(params, text):
    assert chosen(attention, **params).short() == text


@pytest.mark.parametrize(("params", "text"), [row for row in SHORT if row[0]])
def test_short_form_is_read_as_what_is_written(params, text):
    def written(value):
        if isinstance(value, Chosen):
            return {value.name: dict(value.params)} if value.params else value.name
        return list(value) if isinstance(value, tuple) else value

    assert plain(value_node(text, HERE)) == {"mine": {name: written(value) for name, value in params.items()}}


def test_plain_form_holds_every_parameter():
    nested = {"qk_norm": {"mine": {"eps": 0.5, "affine": True}}}
    rest = {"kv_heads": None, "scale": None, "gate": "square", "hidden": 4, "dims": [], "note": ""}
    assert chosen(attention, qk_norm=chosen(Mean, "norm", eps=0.5)).plain() == {"mine": {**rest, **nested}}


def test_plain_form_holds_the_bias_where_it_is_written_only():
    assert "bias" not in chosen(attention).settings()
    assert chosen(attention, bias="qkv").settings()["bias"] == "qkv"


def test_a_written_parameter_has_a_value_and_a_place():
    choice = chosen(attention).with_param("kv_heads", 2, INNER)
    assert (choice.given("kv_heads"), choice.places) == (2, {"kv_heads": INNER})
    assert (choice.given("hidden"), choice.missing(), chosen(attention).missing()) == (4, [], ["kv_heads"])


def test_the_place_is_no_part_of_the_choice():
    def build(dim, *, mode: Literal["a", "b"] = "a"): ...

    same = component(build, "norm")
    assert Chosen(same, {"mode": "a"}, HERE) == Chosen(same, {"mode": "a"}, INNER)
    assert Chosen(same, {"mode": "a"}) != Chosen(same, {"mode": "b"})
