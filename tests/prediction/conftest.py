"""The machine of `machine.py`, measured once."""

from __future__ import annotations

import pytest

from explorer.prediction.calibration import Calibration
from explorer.prediction.rates import Rates
from tests.prediction.machine import Machine, calibrated


@pytest.fixture(scope="session")
def machine() -> Machine:
    return Machine()


@pytest.fixture(scope="session")
def rates(machine: Machine) -> Rates:
    return machine.rates()


@pytest.fixture(scope="session")
def calibration(rates: Rates) -> Calibration:
    return calibrated(rates)
