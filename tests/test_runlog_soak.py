"""Four engines write one file, a reader asks once a second, engines are killed at random: nothing lost or doubled.

GENMON_SOAK_S is how long it goes on, seconds (60; ten minutes by hand).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from genmon.runlog import questions
from genmon.runlog.database import reading
from genmon.runlog.leftovers import take_in_leftovers
from genmon.runlog.spool import spool_root

_SOAK_S = float(os.environ.get("GENMON_SOAK_S", "60"))
_ENGINES = 4
_ACKNOWLEDGED_AFTER_S = 2.0
"""The promise is one second; the machine may be busy with other things."""
_ENGINE = """
import sys, time
from pathlib import Path
from genmon.runlog.log import RunLog
from tests.test_runlog import gpu_reading, request, run_record
from msgspec.structs import replace
path, run = Path(sys.argv[1]), sys.argv[2]
log = RunLog(path, run)
log.put(run_record(run))
ending = __import__("threading").Thread(target=sys.stdin.read, daemon=True)
ending.start()
number = 0
while ending.is_alive():
    for gpu in range(8):
        log.put(replace(gpu_reading(number), run=run, gpu_uuid=f"GPU-{gpu}"))
    for _ in range(3):
        log.put(request(number, run))
        print(number, flush=True)
        number += 1
    time.sleep(0.1)
log.close()
"""


class _Engine:
    """One writing process, and when each of its rows was put."""

    def __init__(self, path: Path, run: str) -> None:
        self.run = run
        self.put_at: list[float] = []
        self.acknowledged = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ENGINE, str(path), run], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.listening = threading.Thread(target=self._listen, daemon=True)
        self.listening.start()

    def kill(self) -> None:
        now = time.monotonic()
        self.process.kill()
        self._wait()
        self.acknowledged = sum(at < now - _ACKNOWLEDGED_AFTER_S for at in self.put_at)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._wait()
        assert self.process.returncode == 0
        self.acknowledged = len(self.put_at)

    def _wait(self) -> None:
        self.process.wait(60)
        self.listening.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for _ in self.process.stdout:
            self.put_at.append(time.monotonic())


@pytest.mark.slow
@pytest.mark.timeout(_SOAK_S * 2 + 240)
def test_four_engines_a_reader_and_random_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    path, chance = tmp_path / "log.duckdb", random.Random(5)
    engines = [_Engine(path, f"e{number}-0") for number in range(_ENGINES)]
    gone: list[_Engine] = []
    waited_s: list[float] = []
    begun = time.monotonic()
    kill_at = begun + 3
    while time.monotonic() < begun + _SOAK_S:
        if path.exists():
            asked_at = time.monotonic()
            questions.runs(path)  # raises what a person would see
            waited_s.append(time.monotonic() - asked_at)
        if time.monotonic() > kill_at:
            slot = chance.randrange(_ENGINES)
            engines[slot].kill()
            gone.append(engines[slot])
            engines[slot] = _Engine(path, f"e{slot}-{len(gone)}")
            kill_at = time.monotonic() + chance.uniform(0.5, 6)
        time.sleep(1)
    for engine in engines:
        engine.end()
    take_in_leftovers(path)
    assert len(waited_s) >= _SOAK_S / 10
    assert list(spool_root(path).iterdir()) == []
    with reading(path) as connection:
        for engine in [*gone, *engines]:
            rows = connection.execute("SELECT position FROM requests WHERE run = ?", [engine.run]).fetchall()
            positions = [row[0] for row in rows]
            assert len(set(positions)) == len(positions), engine.run
            assert set(range(engine.acknowledged)) <= set(positions), engine.run
        states = dict(connection.execute("SELECT run, state FROM run_list").fetchall())
        totals = "SELECT (SELECT sum(rows_done) FROM runs), (SELECT count(*) FROM requests)"
        done, there = connection.execute(totals).fetchall()[0]
        energy = "SELECT (SELECT sum(energy_j) FROM runs), (SELECT sum(energy_j) FROM gpu_samples)"
        by_run, by_sample = connection.execute(energy).fetchall()[0]
    assert done == there
    assert by_run == pytest.approx(by_sample, rel=1e-9)
    assert all(states[engine.run] == "interrupted" for engine in gone if engine.acknowledged)
    worst_s = max(waited_s)
    print(f"{len(gone)} kills, {there:,} rows, {len(waited_s)} answers, the slowest after {worst_s:.1f} s")
