"""The table of devices: its numbers, its names, what a user adds, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.errors import UsageError
from explorer.prediction.hardware import PEAKS, Hardware, Span, implied
from explorer.prediction.hardware_table import HardwareTable, hardware_table, user_file
from explorer.registry.registry import HardwareEntry, Origin

# Three tables that name the vendors' pages agree on them: bf16, fp16, tf32, fp32, fp8 in dense
# TFLOP/s; then GB/s, GB, MiB, and the share of the peak that is reached.
GOLDEN = {
    "h200-sxm": (989, 989, 494, 67, 1979, 4800, 141, 50, 0.80),
    "h100-sxm": (989, 989, 494, 67, 1979, 3350, 80, 50, 0.80),
    "a100-80g-sxm": (312, 312, 156, 19.5, None, 2039, 80, 40, 0.87),
    "l4": (121, 121, 60, 30.3, 242.5, 300, 24, 48, 0.75),
    "l40s": (362, 362, 183, 91.6, 733, 864, 48, None, 0.75),
    "rtx-4090": (165.2, 165.2, 82.6, 82.6, 330.3, 1008, 24, 72, 0.75),
    "b200-sxm": (2250, 2250, 1125, 80, 4500, 8000, 180, 126, 0.78),
    "mi300x": (1307.4, 1307.4, 653.7, 163.4, 2614.9, 5300, 192, 256, 0.51),
}
# What `torch.cuda.get_device_name` says.
DRIVERS = {
    "NVIDIA H200": "h200-sxm",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA A100-SXM4-80GB": "a100-80g-sxm",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA B200": "b200-sxm",
    "AMD Instinct MI300X": "mi300x",
}
LAB = Origin("lab", "lab-dist", "1.0")
ENTRY = {"match": ["Lab 1"], "bf16": 100, "bw": 1000, "mem": 24, "src": "https://lab.example/one"}


@pytest.fixture(autouse=True)
def nobodys_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXPLORER_HARDWARE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def table() -> HardwareTable:
    return hardware_table()


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def entry(**more: object) -> str:
    return str({key: value for key, value in {**ENTRY, **more}.items() if value is not ...})


def test_the_table_holds_the_figures_that_others_agree_on(table: HardwareTable) -> None:
    found = {
        name: (*(d.peaks[column] for column in PEAKS), d.bandwidth_gbs, d.memory_gb, d.llc_mib, d.gemm.point)
        for name, d in table.devices.items()
    }
    assert found == GOLDEN


def test_every_device_says_where_its_numbers_stand(table: HardwareTable) -> None:
    assert [d.name for d in table.devices.values() if not d.src.startswith("https://")] == []
    assert [d.name for d in table.devices.values() if d.gemm.point != 0.75 and not d.achievable_src] == []


def test_spans_hold_their_points(table: HardwareTable) -> None:
    for device in table.devices.values():
        for span in (device.gemm, device.bandwidth, device.host.dispatch_us):
            assert span.low <= span.point <= span.high
        assert (device.gemm.low, device.gemm.high) == (0.5, 0.9)
        assert (device.bandwidth.low, device.bandwidth.high) == (0.7, 0.93)
        assert device.host.dispatch_us == Span(6, 4, 12)


@pytest.mark.parametrize("name", DRIVERS)
def test_what_drivers_say_resolves(name: str, table: HardwareTable) -> None:
    for text in (name, name.lower(), name.upper(), DRIVERS[name], DRIVERS[name].upper()):
        assert table.find(text).name == DRIVERS[name]


def test_every_alias_resolves_to_its_own_device(table: HardwareTable) -> None:
    for device in table.devices.values():
        assert [table.find(alias) for alias in device.match] == [device] * len(device.match)


@pytest.mark.parametrize(
    ("dtype", "column"), [("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32"), ("float8_e4m3fn", "fp8")]
)
def test_float32_is_not_tf32(dtype: str, column: str, table: HardwareTable) -> None:
    assert table.find("h100-sxm").peak(dtype) == table.find("h100-sxm").peaks[column]


@pytest.mark.parametrize(("name", "dtype"), [("a100-80g-sxm", "float8_e4m3fn"), ("h100-sxm", "float64")])
def test_a_dtype_without_a_peak_has_none(name: str, dtype: str, table: HardwareTable) -> None:
    assert table.find(name).peak(dtype) is None


@pytest.mark.parametrize(
    ("name", "guess"),
    [("H100", "'h100-sxm'"), ("nvidia l40", "'NVIDIA L40S'"), ("rtx-4080", "'rtx-4090'"), ("Potato", None)],
)
def test_an_unknown_device_is_an_error_that_says_what_to_add(
    name: str, guess: str | None, table: HardwareTable
) -> None:
    with pytest.raises(UsageError) as caught:
        table.find(name)
    text = str(caught.value)
    assert text.startswith(f"hardware {name!r} is not in the table")
    assert (f"did you mean {guess}?" in text) if guess else ("did you mean" not in text)
    assert ", ".join(GOLDEN) in text
    assert f'match: ["{name}"]' in text


def test_what_the_error_says_to_add_is_enough(tmp_path: Path, table: HardwareTable) -> None:
    with pytest.raises(UsageError) as caught:
        table.find("NVIDIA RTX 9000")
    snippet = "\n".join(line for line in str(caught.value).splitlines() if line.startswith("    "))
    found = hardware_table(file=written(tmp_path, snippet)).find("nvidia rtx 9000")
    assert (found.name, found.peaks["bf16"], found.peaks["fp8"]) == ("my-device", 100, None)


# A user's own file ----------------------------------------------------------------------------------------------------


def test_a_users_file_is_merged_over_the_table(tmp_path: Path) -> None:
    text = f"hardware: {{mine: {entry()}, h100-sxm: {{bw: 3000, achievable: {{bw: 0.9}}}}}}"
    found = hardware_table(file=written(tmp_path, text))
    assert list(found.devices) == [*GOLDEN, "mine"]
    changed = found.find("h100-sxm")
    assert (changed.bandwidth_gbs, changed.bandwidth.point, changed.gemm.point, changed.memory_gb) == (
        3000,
        0.9,
        0.8,
        80,
    )
    assert changed.origin == str(tmp_path / "mine.yaml")
    assert changed.sources.endswith(f"; as {tmp_path / 'mine.yaml'} says")
    assert "says" not in found.find("h200-sxm").sources


def test_a_share_outside_of_the_usual_range_widens_it(tmp_path: Path) -> None:
    text = f"hardware: {{mine: {entry(achievable={'gemm': 0.3, 'bw_range': [0.5, 0.6]})}}}"
    found = hardware_table(file=written(tmp_path, text)).find("mine")
    assert found.gemm == Span(0.3, 0.3, 0.9)
    assert found.bandwidth == Span(0.85, 0.5, 0.85)


@pytest.mark.parametrize("named", [True, False])
def test_where_it_lies(named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "else.yaml" if named else tmp_path / "config" / "architecture-explorer" / "hardware.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"hardware: {{mine: {entry()}}}")
    if named:
        monkeypatch.setenv("EXPLORER_HARDWARE", str(path))
    assert user_file() == path
    assert hardware_table().find("Lab 1").name == "mine"


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "hardware:\n"])
def test_an_empty_file_adds_nothing(text: str, tmp_path: Path) -> None:
    assert list(hardware_table(file=written(tmp_path, text)).devices) == list(GOLDEN)


FAULTS = {  # the file, part of the message
    f"hardware: {{mine: {entry(sparse=200)}}}": "hardware.mine.sparse: there is no 'sparse'\n  peaks are dense",
    f"hardware: {{mine: {entry(bf61=200)}}}": "hardware.mine.bf61: there is no 'bf61'\n  did you mean 'bf16'?",
    f"hardware: {{mine: {entry(bf16='fast')}}}": "hardware.mine.bf16: must be float > 0 or null, not the text 'fast'",
    f"hardware: {{mine: {entry(bf16=-1)}}}": "hardware.mine.bf16: must be float > 0 or null, not the number -1",
    f"hardware: {{mine: {entry(match='Lab 1')}}}": "hardware.mine.match: must be list of at least 1 str",
    f"hardware: {{mine: {entry(achievable={'gemm': 1.2})}}}": "mine.achievable.gemm: must be float > 0 and <= 1",
    f"hardware: {{mine: {entry(src=...)}}}": "hardware.mine: needs `src`, where its numbers stand",
    f"hardware: {{mine: {entry(bw=...)}}}": "hardware.mine: needs `bw`",
    f"hardware: {{mine: {entry(bf16=...)}}}": "hardware.mine: needs a peak: one of bf16, fp16, tf32, fp32, fp8",
    f"hardware: {{mine: {entry(match=['nvidia l4'])}}}": "'nvidia l4' is also what 'l4' (built-in table) is called",
    f"hardware: {{mine: {entry()}, other: {entry(match=['mine'])}}}": "'mine' is also what 'mine'",
    "hardware: {mine: 7}": "hardware.mine: must be a mapping, not the number 7",
    "hardware: {h100-sxm: {bw: null}}": "hardware.h100-sxm.bw: must be float > 0, not null",
    f"hardwares: {{mine: {entry()}}}": "a table of devices has one key, `hardware`\n  did you mean 'hardware'?",
    "[1, 2]": "must be a mapping, not a list",
    "hardware: {a: {}, a: {}}": "a",
}


@pytest.mark.parametrize("text", FAULTS)
def test_what_is_wrong_is_told_with_its_place(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        hardware_table(file=path)
    assert str(caught.value).startswith(str(path))
    assert FAULTS[text] in str(caught.value)


def test_everything_wrong_in_a_file_is_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, f"hardware:\n  a: {entry(sparse=1)}\n  b: {entry(mem='x')}\n")
    with pytest.raises(UsageError) as caught:
        hardware_table(file=path)
    assert [line for line in str(caught.value).splitlines() if line.startswith(str(path))] == [
        f"{path}:2:{len('  a: ' + entry()) + 2}: hardware.a.sparse: there is no 'sparse'",
        f"{path}:3:{entry(mem='x').index(chr(39) + 'x') + 6}: hardware.b.mem: must be float > 0, not the text 'x'",
    ]


def test_a_file_that_somebody_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_HARDWARE", str(tmp_path / "none.yaml"))
    with pytest.raises(UsageError, match=r"none.yaml: the table of devices cannot be read: No such file"):
        hardware_table()


# Plugins --------------------------------------------------------------------------------------------------------------


def test_a_plugin_adds_a_device() -> None:
    found = hardware_table([HardwareEntry("lab-1", ENTRY, LAB)]).find("lab 1")
    assert (found.name, found.peaks["bf16"], found.origin) == ("lab-1", 100, "hardware 'lab-1' of lab-dist 1.0 (lab)")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "lab-1",
            {"sparse": 1},
            r"hardware 'lab-1' of lab-dist 1.0 \(lab\): hardware.lab-1.sparse: there is no 'sparse'",
        ),
        ("lab-1", {"src": object()}, r"\(lab\): src: a object is no blueprint value"),
        ("l4", {}, r"hardware 'l4' of lab-dist 1.0 \(lab\): built-in table has 'l4' too; only a user's own file may"),
        ("lab-1", {"match": ["NVIDIA B200"]}, r"'NVIDIA B200' is also what 'b200-sxm' \(built-in table\) is called"),
    ],
)
def test_a_plugin_at_fault_is_named(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hardware_table([HardwareEntry(name, {**ENTRY, **changes}, LAB)])


# Impossible times -----------------------------------------------------------------------------------------------------


def device(tmp_path: Path) -> Hardware:
    return hardware_table(file=written(tmp_path, f"hardware: {{mine: {entry(tf32=50, fp32=20)}}}")).find("mine")


@pytest.mark.parametrize(("ms", "possible"), [(0.001, False), (0.418, False), (0.419, True), (6.0, True)])
def test_a_time_beyond_the_peak_is_told(ms: float, possible: bool, tmp_path: Path) -> None:
    """C1: the d 768, T 2048 block is 41 875 931 136 FLOPs: less than 419 us on a 100 TFLOP/s device is impossible."""
    said = implied(41_875_931_136, ms, device(tmp_path), "bfloat16")
    assert (said is None) == possible
    if said is not None:
        assert f"{ms:.4g} ms for 41,875,931,136 FLOPs implies" in said
        assert "more than the dense peak of mine, 100 TFLOP/s (https://lab.example/one)" in said


@pytest.mark.parametrize(
    ("dtype", "ms", "possible"),
    [("float32", 0.021, True), ("float32", 0.019, False), (None, 0.0101, True), (None, 0.0099, False)],
)
def test_the_bound_is_the_fastest_way_there_may_be(
    dtype: str | None, ms: float, possible: bool, tmp_path: Path
) -> None:
    """float32 may run as tf32 (50), and where nobody says in what, the largest peak (100) is the bound."""
    assert (implied(10**9, ms, device(tmp_path), dtype) is None) == possible


@pytest.mark.parametrize(("flops", "dtype"), [(0, "bfloat16"), (10**15, "float64")])
def test_without_products_or_peak_nothing_is_impossible(flops: int, dtype: str, tmp_path: Path) -> None:
    assert implied(flops, 1e-9, device(tmp_path), dtype) is None
