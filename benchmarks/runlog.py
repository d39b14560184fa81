"""What the run log costs with ten million sample rows in it: `python -m benchmarks.runlog`.

Measures a burst (open, take in five seconds of an engine with eight GPUs, close) and `genmon runs` as a process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from genmon.runlog.database import writing
from genmon.runlog.ingest import take_in
from genmon.runlog.records import GpuReading, Request, ServerReading
from genmon.runlog.spool import Spool, remove_segment, spool_root

_RUNS, _GPUS = 16, 8
_BURST_S = 5
_ROWS_PER_S = 4


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Sample rows in the file before.")
@click.option("--rounds", default=30, show_default=True, help="Bursts to measure.")
def main(rows: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.duckdb"
        begun = time.monotonic()
        fill(path, rows)
        click.echo(
            f"{rows:,} sample rows, {path.stat().st_size / 1e6:.0f} MB, made in {time.monotonic() - begun:.0f} s"
        )
        tell("a burst", [_burst(path, number) for number in range(rounds)])
        command = [sys.executable, "-m", "genmon", "runs", "--log", str(path)]
        tell("genmon runs", [_timed(command) for _ in range(max(5, rounds // 3))])
        tell("genmon show", [_timed([*command[:3], "show", "run-15", *command[4:]]) for _ in range(3)])


def fill(path: Path, rows: int) -> None:
    """Runs of eight GPUs at 1 Hz, one after the other: as many GPU as server samples."""
    seconds = rows // (2 * _RUNS * _GPUS)
    with writing(path) as connection:
        connection.execute(
            "INSERT INTO runs (run, name, model, host, simulated, genmon, project_directory, job_directory, config, "
            "started_at, last_seen_at, ended_at, outcome, energy_j, gpu_seconds) "
            "SELECT 'run-' || r, 'run', 'm', 'here', true, '0', '', '', '{}', make_timestamp(1700000000000000 + r * "
            "1000000000), make_timestamp(1700000900000000 + r * 1000000000), NULL, 'finished', 1e6, 2e3 "
            "FROM range(?) t(r)",
            [_RUNS],
        )
        ticks = (
            "FROM range(?) a(r), range(?) b(s), range(?) c(g)",
            [_RUNS, seconds, _GPUS],
        )
        connection.execute(
            "INSERT INTO gpu_samples BY NAME SELECT 'run-' || r AS run, to_timestamp(1700000000 + r * 1000000 + s)"
            "::TIMESTAMP AS taken_at, 'here' AS host, 'GPU-' || g AS gpu_uuid, g AS gpu_index, 'H200' AS gpu_name, "
            "'s' || g || '#1' AS launch, true AS simulated, 1.0 AS seconds, 500 + random() * 100 AS energy_j, "
            "500 + random() * 100 AS power_w, 500 + random() * 100 AS power_instant_w, 700.0 AS power_limit_w, "
            f"1980.0 AS sm_clock_mhz, 60.0 AS temperature_c, 1.0 AS utilization, 1 AS samples {ticks[0]}",
            ticks[1],
        )
        connection.execute(
            "INSERT INTO server_samples BY NAME SELECT 'run-' || r AS run, to_timestamp(1700000000 + r * 1000000 + s)"
            "::TIMESTAMP AS taken_at, 's' || g || '#1' AS launch, true AS simulated, 'ready' AS phase, 1.0 AS seconds, "
            "(1000 + random() * 100)::BIGINT AS tokens, 1000 + random() * 100 AS tokens_per_s, 32.0 AS in_flight, "
            f"32.0 AS running, 2.8 AS acceptance_length, 1 AS samples {ticks[0]}",
            ticks[1],
        )


def _burst(path: Path, number: int) -> float:
    """Seconds that one burst takes, as the engine does it."""
    run = f"burst-{number}"
    spool = Spool(spool_root(path) / run)
    for second in range(_BURST_S):
        at = 1_800_000_000.0 + number * 1000 + second
        for gpu in range(_GPUS):
            spool.put(_gpu(run, at, gpu))
            spool.put(_server(run, at, gpu))
        for row in range(_ROWS_PER_S):
            spool.put(_request(run, at, second * _ROWS_PER_S + row))
    spool.close()
    begun = time.monotonic()
    with writing(path) as connection:
        for segment in spool.complete():
            take_in(connection, spool.folder, run, segment)
    took_s = time.monotonic() - begun
    for segment in spool.complete():
        remove_segment(spool.folder, segment)
    spool.release()
    return took_s


def _gpu(run: str, at: float, gpu: int) -> GpuReading:
    return GpuReading(
        run=run,
        taken_at=at,
        host="here",
        gpu_uuid=f"GPU-{gpu}",
        gpu_index=gpu,
        gpu_name="H200",
        launch=f"s{gpu}#1",
        simulated=True,
        seconds=1.0,
        energy_j=540.0,
        power_w=540.0,
        power_instant_w=541.0,
        power_limit_w=700.0,
        power_default_limit_w=700.0,
        sm_clock_mhz=1980,
        temperature_c=61,
        utilization=1.0,
        memory_used_b=10**11,
        memory_total_b=15 * 10**10,
        reasons=(),
        trouble=None,
    )


def _server(run: str, at: float, gpu: int) -> ServerReading:
    return ServerReading(
        run=run,
        taken_at=at,
        launch=f"s{gpu}#1",
        simulated=True,
        phase="ready",
        seconds=1.0,
        tokens=1200,
        tokens_per_s=1200.0,
        in_flight=32,
        running=32,
        queued=0,
        acceptance_length=2.8,
        kv_usage=0.5,
        mamba_usage=None,
    )


def _request(run: str, at: float, row: int) -> Request:
    return Request(
        run=run,
        row_id=f"r{row}",
        position=row,
        attempt=1,
        launch="s0#1",
        simulated=True,
        started_at=at,
        latency_s=9.0,
        outcome="done",
        answer_class="complete",
        finish_reason="stop",
        prompt_tokens=100,
        completion_tokens=900,
        reasoning_tokens=None,
        acceptance_length=None,
        trouble=None,
    )


def _timed(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def tell(what: str, took_s: list[float]) -> None:
    """Median and worst, milliseconds."""
    click.echo(f"{what}: {statistics.median(took_s) * 1e3:.0f} ms, worst {max(took_s) * 1e3:.0f} ms, n = {len(took_s)}")


if __name__ == "__main__":
    main()
