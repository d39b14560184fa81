"""What is normal comes from the run log: half-minutes of steady decoding, of the same model, simulated ones apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from genmon.engine.learned import learned
from genmon.runlog.database import writing
from genmon.tells.normal import Setting

BEGAN = "2026-12-01 04:00:00"


def setting(**fields: object) -> Setting:
    usual: dict[str, object] = {"gpu_uuid": "GPU-0", "gpu_name": "NVIDIA H200", "model": "m", "quantisation": "fp8"}
    return Setting(**{**usual, "mtp": True, "running": 8.0, **fields})  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Five minutes of a server with 8 requests and MTP, 560 of 700 W, 700 tokens/s; and a start without work."""
    path = tmp_path / "genmon.duckdb"
    with writing(path) as connection:
        connection.execute("INSERT INTO runs (run, name, model, simulated) VALUES ('r', 'r', 'm', false)")
        connection.execute(
            "INSERT INTO launches (run, launch, mtp, flags) VALUES ('r', 's0#1', true, MAP {'quantization': 'fp8'})"
        )
        second = f"TIMESTAMP '{BEGAN}' + to_seconds(n)"
        connection.execute(
            "INSERT INTO server_samples (run, taken_at, launch, phase, tokens, tokens_per_s, running,"
            f" acceptance_length, samples) SELECT 'r', {second}, 's0#1', 'ready', if(n < 60, 0, 700),"
            " if(n < 60, 0, 700),"
            " if(n < 60, 0, 8), 2.8, 1 FROM range(360) AS seconds(n)"
        )
        connection.execute(
            "INSERT INTO gpu_samples (run, taken_at, launch, gpu_uuid, gpu_name, power_w, power_limit_w, energy_j,"
            f" samples) SELECT 'r', {second}, 's0#1', 'GPU-0', 'NVIDIA H200', if(n < 60, 119, 560), 700.0,"
            " if(n < 60, 119, 560), 1 FROM range(360) AS seconds(n)"
        )
    return path


def test_bands_of_all_figures_with_their_n(log: Path) -> None:
    normal = learned(log, "m", simulated=False)
    assert normal is not None
    bands = {name: normal.band(name, setting()) for name in ("power_fraction", "joules_per_token")}
    power, joules = bands["power_fraction"], bands["joules_per_token"]
    assert power is not None and (power.usual, power.n, power.prior) == (0.8, 10, False)
    assert joules is not None and joules.usual == pytest.approx(0.8)
    speed = normal.band("tokens_per_s_request", setting(gpu_uuid="GPU-7"))
    assert speed is not None and speed.usual == 87.5, "another card of the same name"
    assert normal.band("power_fraction", setting(mtp=False)) is None
    assert normal.band("power_fraction", setting(quantisation="")) is None


def test_simulated_runs_and_other_models_teach_nothing(log: Path) -> None:
    for normal in (learned(log, "m", simulated=True), learned(log, "other", simulated=False)):
        assert normal is not None
        assert normal.band("power_fraction", setting()) is None


def test_without_a_log_nothing_is_known(tmp_path: Path) -> None:
    assert learned(tmp_path / "none.duckdb", "m", simulated=False) is None


def test_the_last_sweep_tells_where_mtp_stops_paying(log: Path) -> None:
    sweeps = [("old", 1, (100.0, 80.0), (90.0, 70.0)), ("new", 2, (60.0, 1400.0, 2400.0), (120.0, 1700.0, 2100.0))]
    with writing(log) as connection:
        for run, hour, off, on in sweeps:
            for mtp, rates in ((False, off), (True, on)):
                for concurrency, rate in zip((1, 32, 64), rates, strict=False):
                    connection.execute(
                        "INSERT INTO sweep_points (run, model, simulated, measured_at, changed, gpu_name, mtp,"
                        " concurrency, tokens_per_s) VALUES (?, 'm', false, ?, MAP {}, 'NVIDIA H200', ?, ?, ?)",
                        [run, f"2026-12-01 0{hour}:00:00", mtp, concurrency, rate],
                    )
    normal = learned(log, "m", simulated=False)
    assert normal is not None
    crossover = normal.crossover(setting())
    assert crossover is not None
    assert (crossover.low, crossover.high, crossover.n, crossover.prior) == (32, 64, 3, False)
    assert 45 < crossover.usual < 55
    assert normal.crossover(setting(gpu_name="NVIDIA B200")) is None
    assert normal.band("power_fraction", setting()) is not None
