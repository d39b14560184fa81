"""The headless views: what they say beside the figures."""

from __future__ import annotations

import io
import time

from rich.console import Console

from genmon.batch.lines import LineView
from genmon.batch.terminal import picture
from genmon.state import GpuSample, JobState, RunPhase, State

NOW = time.time()
SILENT = "the driver has not answered for 34 s"


def state(*troubles: str | None) -> State:
    gpus = tuple(
        GpuSample(host="here", index=number, uuid=f"GPU-{number}", name="H200", taken_at=NOW, trouble=trouble)
        for number, trouble in enumerate(troubles)
    )
    job = JobState(rows_total=10, rows_done=5)
    return State(run="test", phase=RunPhase.RUNNING, started_at=NOW, taken_at=NOW, job=job, gpus=gpus)


def drawn(state: State, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    with console.capture() as captured:
        console.print(picture(state, width, height))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_what_ails_a_gpu_is_drawn_and_written() -> None:
    assert f"GPU 1: {SILENT}" in drawn(state(None, SILENT))
    assert not any("GPU" in line for line in drawn(state(None, None)))
    out = io.StringIO()
    LineView(out).show(state(None, SILENT))
    assert f"GPU 1: {SILENT}" in out.getvalue()


def test_the_picture_keeps_within_the_terminal() -> None:
    troubles = state(*(f"{SILENT}, and much more that is to be said of it" for _ in range(4)))
    lines = drawn(troubles, width=60, height=20)
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 60
