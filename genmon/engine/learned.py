"""What is normal here, from the run log."""

from __future__ import annotations

from pathlib import Path

from genmon.errors import LogError
from genmon.runlog.half_minutes import HalfMinute, half_minutes
from genmon.runlog.swept import Level, levels
from genmon.tells.crossover import Crossing, crossing
from genmon.tells.normal import FIGURES, Chain, Learned, Normal, Reading, Setting, Swept


def learned(log: Path, model: str, *, simulated: bool) -> Normal | None:
    """What earlier runs and the last sweep of a model taught; None when there is no log, or it cannot be read now.

    Reads a file.
    """
    try:
        found = half_minutes(log, model, simulated=simulated)
        swept = levels(log, model, simulated=simulated)
    except LogError:
        return None
    return Chain([Swept(_crossings(swept)), _history(model, found)])


def _crossings(swept: list[Level]) -> dict[str, tuple[Crossing, int]]:
    arms: dict[str, dict[bool, dict[int, float]]] = {}
    for level in swept:
        arms.setdefault(level.gpu_name, {False: {}, True: {}})[level.mtp][level.concurrency] = level.tokens_per_s
    return {
        name: (found, len(each[False].keys() & each[True].keys()))
        for name, each in arms.items()
        if (found := crossing(each[False], each[True])) is not None
    }


def _history(model: str, found: list[HalfMinute]) -> Learned:
    return Learned(
        Reading(
            setting=Setting(
                gpu_uuid=each.gpu_uuid,
                gpu_name=each.gpu_name,
                model=model,
                quantisation=each.quantisation,
                mtp=each.mtp,
                running=each.running,
            ),
            figures={figure: value for figure in FIGURES if (value := getattr(each, figure)) is not None},
        )
        for each in found
    )
