"""A sweep for people: a table with a bar a point, and the answer in sentences; or CSV."""

from __future__ import annotations

import csv
from typing import TextIO

from rich.console import Console
from rich.table import Table

from genmon.figures import UNKNOWN, count, decimal, duration, share
from genmon.sweep.answer import Cost, Crossover, answer, cost
from genmon.sweep.result import Point, Sweep

_BAR = 16
_DROPPED = ("", "cap", "±", "ITL", "TTFT", "kWh", "of limit", "accept", "rest of job")


def show(sweep: Sweep, console: Console) -> None:
    """Print the table and the answer."""
    if sweep.simulated:
        console.print("SIMULATED servers and GPUs", style="bold black on yellow")
    console.print(_table(sweep, console.width))
    for line in sentences(sweep):
        console.print(line, soft_wrap=True)


def sentences(sweep: Sweep) -> list[str]:
    """The answer, one sentence a line."""
    found = answer(sweep)
    lines = [_best("Most tokens a second", sweep, found.fastest)]
    if found.thriftiest is not None:
        lines.append(_best("Fewest joules a token", sweep, found.thriftiest))
    lines += [_crossing(each) for each in found.crossovers]
    if sweep.rows_left is not None and sweep.tokens_per_row is None:
        lines.append("Days and kWh are unknown: no row finished while it was measured; give a point more --seconds.")
    lines += [
        f"Not measured: {each.variant}{'' if each.concurrency is None else f', C={each.concurrency}'}: {each.reason}"
        for each in sweep.skipped
    ]
    return lines


def write_csv(sweep: Sweep, out: TextIO) -> None:
    """One line a point; unknown is empty."""
    names = [name for name in Point.__struct_fields__ if name != "changed"]
    flags = sorted({name for point in sweep.points for name in point.changed})
    writer = csv.writer(out)
    writer.writerow([*names, *flags, "days", "energy_kwh", "simulated"])
    for point in sweep.points:
        needs = cost(sweep, point)
        values = [*(getattr(point, name) for name in names), *(point.changed.get(name) for name in flags)]
        writer.writerow([*values, needs.days, needs.energy_kwh, sweep.simulated])


def _table(sweep: Sweep, width: int) -> Table:
    """One row a point. A narrow terminal loses columns in the order of `_DROPPED`; nothing is cut mid-number."""
    most = max((point.tokens_per_s for point in sweep.points), default=1.0)
    best = answer(sweep).fastest
    points = sorted(sweep.points, key=lambda point: (point.variant, point.concurrency))
    rows = [_cells(point, cost(sweep, point), most) for point in points]
    names = list(rows[0]) if rows else []
    needed = {name: max(len(name), *(len(row[name]) for row in rows)) + 2 for name in names}
    for name in _DROPPED:
        if sum(needed[name] for name in names) > width and name in names:
            names.remove(name)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name in ("flags", "") else "right", no_wrap=True)
    for point, row in zip(points, rows, strict=True):
        table.add_row(*(row[name] for name in names), style="bold" if point is best else None)
    return table


def _cells(point: Point, needs: Cost, most: float) -> dict[str, str]:
    mean, limit = point.tokens_per_s, point.power_limit_w
    return {
        "flags": point.variant,
        "C": str(point.concurrency),
        "tok/s": count(mean),
        "": "█" * max(1, round(mean / most * _BAR)),
        "±": f"{(point.tokens_per_s_high - mean) / mean:.1%}",
        "W": decimal(point.power_w, 0),
        "of limit": share(point.power_w / limit if point.power_w is not None and limit else None),
        "J/tok": decimal(point.joules_per_token),
        "accept": decimal(point.acceptance_length),
        "TTFT": _milliseconds(point.ttft_s),
        "ITL": _milliseconds(point.itl_s),
        "cap": UNKNOWN if point.cap is None else str(point.cap),
        "rest of job": _rest(needs),
        "kWh": decimal(needs.energy_kwh),
    }


def _milliseconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds * 1e3:.0f} ms"


def _rest(needs: Cost) -> str:
    return duration(None if needs.days is None else needs.days * 86400)


def _best(what: str, sweep: Sweep, point: Point | None) -> str:
    if point is None:
        return f"{what}: nothing was measured."
    needs = cost(sweep, point)
    job = ""
    if needs.days is not None:
        energy = "" if needs.energy_kwh is None else f" and {needs.energy_kwh:,.2f} kWh"
        gpus = "1 GPU" if sweep.gpus == 1 else f"{sweep.gpus} GPUs"
        job = f": the {sweep.rows_left:,} rows left take {_rest(needs)}{energy} on {gpus}"
    return f"{what}: {point.variant} at C={point.concurrency}, {count(point.tokens_per_s)} tok/s a GPU{job}."


def _crossing(crossover: Crossover) -> str:
    where = f" with {crossover.changed}" if crossover.changed else ""
    if crossover.concurrency is not None:
        between = f"between C={crossover.low} and {crossover.high}, at about {crossover.concurrency:.0f}"
        return f"MTP stops paying{where} {between}."
    if crossover.low is None:
        return f"MTP does not pay{where} at any measured concurrency, from C={crossover.high} on."
    return f"MTP pays{where} at every measured concurrency, up to C={crossover.low}."
