"""What is normal here, from the run log."""

from __future__ import annotations

from pathlib import Path

from genmon.errors import LogError
from genmon.runlog.half_minutes import half_minutes
from genmon.tells.normal import FIGURES, Learned, Reading, Setting


def learned(log: Path, model: str, *, simulated: bool) -> Learned | None:
    """What earlier runs of a model taught; None when there is no log, or it cannot be read now. Reads a file."""
    try:
        found = half_minutes(log, model, simulated=simulated)
    except LogError:
        return None
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
