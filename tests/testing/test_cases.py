"""Which components and checks `contract_cases` gives, and how it finds values for required parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from unittest import SkipTest

import pytest
from annotated_types import Ge, Gt
from torch import Tensor, nn

from explorer import Norm, PluginError, UsageError, Value, Width
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.registry.registry import Broken, Origin, Registry
from explorer.testing import CHECKS, Case, ContractFailure, contract_cases


class Mixture(nn.Module):
    """Required parameters of every sort that constrain each other."""

    def __init__(
        self,
        dim: int,
        vocab: int | None,
        *,
        experts: Annotated[int, Ge(4)],
        top_k: Annotated[int, Ge(1)],
        hidden: Width,
        share: Annotated[float, Gt(0.5)],
        router: Literal["softmax", "sigmoid"],
        norm: Norm,
        taper: Taper,
        exact: bool,
    ) -> None:
        super().__init__()
        if top_k * 4 > experts:
            raise ValueError(f"top_k {top_k} must be at most a quarter of experts {experts}")
        if vocab is None:
            raise ValueError("it hashes token ids: write `vocab`")
        width = hidden.of(dim)
        self.norm, self.up, self.down = norm(dim), nn.Linear(dim, width), nn.Linear(width, dim)
        self.scale = share * taper.factor

    def forward(self, x: Tensor, ids: Tensor | None = None) -> Tensor:
        return self.scale * self.down(self.up(self.norm(x)))


class Taper(Value):
    text = "{factor: number, from: int}"

    def __init__(self, factor: float) -> None:
        self.factor = factor

    @classmethod
    def parse(cls, value: Any) -> Taper:
        if not isinstance(value, dict) or set(value) != {"factor", "from"}:
            raise ValueError("a taper has factor and from")
        return cls(value["factor"])

    @classmethod
    def schema(cls) -> dict[str, Any]:
        properties = {"factor": {"type": "number", "minimum": 1}, "from": {"type": "integer"}}
        return {"type": "object", "properties": properties, "required": ["factor", "from"]}


class Table(nn.Module):
    """Needs a file that nobody can guess."""

    def __init__(self, dim: int, *, path: str) -> None:
        super().__init__()
        if path != "/weights":
            raise ValueError(f"there is no table at {path}")

    def forward(self, x: Tensor) -> Tensor:
        return x


class Bare(nn.Module):
    """An attention that takes x only and declares so: no mask, no cache, no context; always causal."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.map = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x).cumsum(1)


def of(cases: list[Case], check: str) -> Case:
    (case,) = (case for case in cases if case.rule.name == check)
    return case


def test_required_parameters_get_small_values_that_the_constructor_accepts(cases: Any) -> None:
    made = cases({"feedforward": {"mixture": Mixture}})
    params = made[0].toy.params
    assert (params["experts"], params["top_k"], params["hidden"]) == (8, 2, 2)
    assert set(params["taper"]) == {"factor", "from"}
    for case in made:
        if not case.slow and case.rule.name != "picked_dropout_acts":
            case.check()


def test_a_required_parameter_that_cannot_be_guessed_fails_with_its_schema(cases: Any) -> None:
    case = of(cases({"norm": {"table": Table}}), "builds")
    with pytest.raises(ContractFailure, match=r"(?s)path \(str, required\).*contract_cases\(parameters="):
        case.check()


def test_given_parameters_are_used(cases: Any) -> None:
    given = {"norm": {"table": {"path": "/weights"}}}
    of(cases({"norm": {"table": Table}}, given), "keeps_shape_and_dtype").check()


@pytest.mark.parametrize(
    "check",
    [
        "masked_out_row",
        "mask_hides",
        "mask_broadcasts",
        "causal_is_a_mask",
        "window_hides",
        "cache_equals_full_pass",
        "crosses",
        "picked_dropout_acts",
        "stays_with_the_stack",
    ],
)
def test_what_a_component_does_not_declare_is_skipped_with_the_reason(cases: Any, check: str) -> None:
    case = of(cases({"attention": {"bare": Bare}}), check)
    with pytest.raises(SkipTest, match=r"attention 'bare'.*(takes no|does not pick)"):
        case.check()


def test_what_it_declares_still_holds(cases: Any) -> None:
    names = ("gradients", "hides_the_future", "batch_rows_independent", "every_operator_counted", "compiles")
    for name in names:
        of(cases({"attention": {"bare": Bare}}), name).check()


def test_all_components_get_all_checks_but_slow_ones_come_once_a_kind() -> None:
    made = contract_cases()
    registry = load_registry()
    for kind in KINDS:
        built = [component for component in registry.components(kind) if component.constructor is not None]
        slow = [check for check in CHECKS[kind] if check.slow]
        expected = len(built) * (len(CHECKS[kind]) - len(slow)) + len(slow)
        assert sum(case.toy.kind == kind for case in made) == expected
    assert len({str(case) for case in made}) == len(made)


def test_a_package_gets_its_own_components_only(cases: Any) -> None:
    made = cases({"norm": {"layernorm": lambda dim: nn.LayerNorm(dim)}})
    assert {str(case).rsplit("-", 1)[0] for case in made} == {"norm-lab_parts:layernorm"}
    of(made, "builds").check()


def test_an_unknown_package_is_an_error_that_lists_the_installed_ones() -> None:
    with pytest.raises(UsageError, match=r"is called 'explorer_norm'; did you mean 'explorer_norms'\?; installed: "):
        contract_cases("explorer_norm")


def test_a_broken_package_is_an_error_with_its_reason() -> None:
    broken = Broken(Origin("lab_parts", "lab-parts", "0.3"), "ImportError: no module named 'labtools'")
    registry = Registry(load_registry().packages, (broken,))
    with pytest.raises(PluginError, match=r"lab-parts 0\.3 is broken: ImportError"):
        contract_cases("lab_parts", registry=registry)


def test_a_signature_that_is_no_schema_fails_its_own_cases_only(cases: Any) -> None:
    def untyped(dim, *, eps=1e-5):  # type: ignore[no-untyped-def]
        return nn.LayerNorm(dim, eps)

    made = cases({"norm": {"untyped": untyped, "fine": lambda dim: nn.LayerNorm(dim)}})
    for case in made:
        if case.rule.name == "builds" and case.toy.component.name == "untyped":
            with pytest.raises(ContractFailure, match="parameter 'eps' has no annotation"):
                case.check()
        elif case.rule.name == "builds":
            case.check()
