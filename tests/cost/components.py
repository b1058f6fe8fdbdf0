"""Every installed component in a small model, with widths that torch's kernels for groups of rows do not pad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from explorer.blueprint.plan import ModelPlan
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.testing.toy import Toy

# 2 layers, so 5 norms, of 16 channels. torch's fake kernel of batch norm has the mean and the deviation that are kept
# for backward in the dtype of the input, 2 bytes, and the CPU's has them in that of the weights, 4 bytes.
_WRONG = {("batchnorm", "bfloat16"): -5 * 2 * 16 * 2}


@dataclass(frozen=True)
class Installed:
    """One component."""

    toy: Toy

    def __str__(self) -> str:
        return f"{self.kind}-{self.toy.component.name}"

    @property
    def kind(self) -> str:
        return self.toy.kind

    @property
    def placements(self) -> tuple[str, ...]:
        return self.toy.placements if self.kind == "residual" else ("pre",)

    def fields(self) -> dict[str, Any]:
        """As a blueprint writes it."""
        return self._wide().written()

    def plan(self, changes: Mapping[str, Any]) -> ModelPlan:
        """dim 16, 4 heads, 2 layers, 32 words."""
        return self._wide().plan(changes)

    def wrong(self, dtype: str) -> int:
        """Bytes by which torch's own fake kernels are wrong about what its CPU kernels keep."""
        return _WRONG.get((self.toy.component.name, dtype), 0)

    def _wide(self) -> Toy:
        return self.toy.with_setting({name: 16 for name in ("hidden", "latent") if name in self.toy.params})


_REGISTRY = load_registry()
COMPONENTS = [
    Installed(Toy(component, _REGISTRY))
    for kind in KINDS
    for component in _REGISTRY.components(kind)
    if component.constructor is not None
]
