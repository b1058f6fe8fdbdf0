"""Tests of a device have it to themselves: another worker's would show in their times and in its free memory."""

import os

import pytest


@pytest.fixture(autouse=True)
def alone():
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        pytest.skip("needs the device alone: run `pytest -n 0 tests/gpu`")
