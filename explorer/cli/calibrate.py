"""`explorer calibrate`: measures the device at hand, so that latencies on it can be predicted."""

from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.failures import exit_codes
from explorer.cli.latency_options import Device, words
from explorer.cli.options import Debug
from explorer.cli.progress import Progress
from explorer.cli.screen import complain, emit

if TYPE_CHECKING:
    from explorer.prediction.calibration import Calibration


def calibrate(
    device: Device = None,
    dtype: Annotated[
        str, typer.Option(metavar="A,B", help="Dtypes to measure: float32, bfloat16, float16, float64.")
    ] = "float32,bfloat16",
    debug: Debug = False,
) -> None:
    """Measure kernels and tiny blocks on this device, some 25 seconds for each dtype, and store what predictions need.

    Blocks that no curve was fitted to tell how far predictions are off.
    """
    with exit_codes(debug):
        from explorer.errors import UsageError
        from explorer.latency.device import resolve_device
        from explorer.prediction.calibrate import calibrate as measure
        from explorer.prediction.store import save, stored

        dtypes = words(dtype)
        if not dtypes:
            raise UsageError("--dtype is empty; name one at least, such as float32")
        where = resolve_device(device)
        with Progress() as progress:
            found = measure(where, dtypes, on_progress=progress)
        path = save(found)
        kept = stored(found.name, found.threads) or found
        dates = ", ".join(f"{name} of {of.date}" for name, of in kept.dtypes.items())
        emit("\n".join([*_table(found), "", f"stored in {path}: {dates}"]) + "\n")
        for name, of in found.dtypes.items():
            for fault in of.faults:
                complain(f"{name}: predictions are not validated on this device: {fault}")


def _table(found: "Calibration") -> list[str]:
    from explorer.prediction.summary import figures
    from explorer.report.grid import GridColumn, grid, widest
    from explorer.report.units import four_digits

    guards = ", ".join(dict.fromkeys(of.guard for of in found.dtypes.values()))
    head = f"{found.name}, {found.on_threads}, torch {found.torch}; watched: {guards}"
    rows = figures(found)
    columns = {
        "what": [row.what for row in rows],
        "dtype": [row.dtype for row in rows],
        "value": [four_digits(row.value) for row in rows],
        "unit": [row.unit for row in rows],
    }
    table = [GridColumn(name, cells, widest([name, *cells]), right=name == "value") for name, cells in columns.items()]
    return [head, "", *(line.text for line in grid(table))]
