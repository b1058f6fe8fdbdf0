"""Devices of plugins: how they come in, and what breaks a package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from explorer.prediction.hardware_table import hardware_table

HOOK = "from explorer import hookimpl\n@hookimpl\ndef register_hardware():\n    return "
FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_devices_come_with_their_package(site, load):
    site.plugin("lab", HOOK + "{'lab-2': {'bw': 1}, 'lab-1': {'bw': 2}}")
    entries = [entry for entry in load().hardware if entry.package == "lab"]
    assert [(entry.name, entry.entry) for entry in entries] == [("lab-1", {"bw": 2}), ("lab-2", {"bw": 1})]
    assert str(entries[0]) == "hardware 'lab-1' of lab-dist 1.0 (lab)"


def test_the_fixture_plugin_is_found_by_what_its_driver_says(load, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FIXTURES), *sys.path])
    monkeypatch.setenv("EXPLORER_HARDWARE", "")
    monkeypatch.delitem(sys.modules, "lab_gpu", raising=False)
    found = hardware_table(load("lab_gpu").hardware).find("lab gpu 48gb")
    assert (found.name, found.bandwidth_gbs, found.peaks["fp8"]) == ("lab-gpu", 960, None)


BROKEN = {  # what the hook returns, part of the reason
    "[]": "hook register_hardware must return a mapping of device names to entries, not list",
    "{'lab 1': {}}": "hook register_hardware: 'lab 1' is no name",
    "{'lab-1': 7}": "hook register_hardware: 'lab-1' must be a mapping of its numbers, not int",
    "1 / 0": "hook register_hardware failed: ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("offered", BROKEN)
def test_a_hook_at_fault_breaks_its_package(offered, site, load):
    site.plugin("bad", HOOK + offered)
    (broken,) = [one for one in load().broken if one.name == "bad"]
    assert BROKEN[offered] in broken.reason


def test_one_package_may_not_say_it_twice(site, load):
    twice = "\n".join(f"{name} = hookimpl(specname='register_hardware')(lambda: {{'lab-1': {{}}}})" for name in "ab")
    site.plugin("bad", f"from explorer import hookimpl\n{twice}")
    (broken,) = [one for one in load().broken if one.name == "bad"]
    assert "it offers the hardware 'lab-1' 2 times" in broken.reason


def test_two_packages_with_one_device_are_both_named(site, load):
    for name in ("lab_b", "lab_a"):
        site.plugin(name, HOOK + "{'lab-1': {}}")
    registry = load()
    with pytest.raises(
        Exception, match=r"hardware 'lab-1' of lab_b-dist 1.0 \(lab_b\): hardware 'lab-1' of lab_a-dist"
    ):
        hardware_table(registry.hardware)
