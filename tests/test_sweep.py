"""The sweep: its grid, its answer, and the simulated box's true optimum and crossover found again."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from genmon.config.schema import JobConfig, ModelConfig, RunConfig, ServersConfig
from genmon.errors import ConfigError
from genmon.runlog.database import reading
from genmon.runlog.log import RunLog
from genmon.sim.physics import tokens_per_s
from genmon.sweep.answer import answer, cost
from genmon.sweep.grid import variants
from genmon.sweep.record import record
from genmon.sweep.result import Point, Skipped, Sweep
from genmon.sweep.show import sentences, show, write_csv


def config(**servers: object) -> RunConfig:
    return RunConfig(
        model=ModelConfig(path="Qwen/Qwen3.6-27B"),
        job=JobConfig(prompts=["p.jsonl"], output="out"),
        servers=ServersConfig(**servers),  # type: ignore[arg-type]
    )


def point(mtp: bool, concurrency: int, rate: float, joules: float | None = None) -> Point:
    return Point(
        variant=f"MTP {'on' if mtp else 'off'}",
        mtp=mtp,
        changed={},
        concurrency=concurrency,
        server="s0",
        gpu_uuid="GPU-0",
        gpu_name="H200",
        cap=64,
        tokens_per_s=rate,
        tokens_per_s_low=rate * 0.99,
        tokens_per_s_high=rate * 1.01,
        slices=8,
        seconds=30.0,
        power_w=None if joules is None else joules * rate,
        power_limit_w=700.0,
        joules_per_token=joules,
    )


def found(*points: Point, **fields: object) -> Sweep:
    base: dict[str, object] = {
        "run": "r",
        "model": "m",
        "host": "h",
        "at": 0.0,
        "command": "genmon sweep r.toml",
        "genmon_version": "0",
        "sglang_version": "0.5.11",
        "simulated": False,
        "gpus": 4,
        "points": points,
    }
    return Sweep(**{**base, **fields})  # type: ignore[arg-type]


def test_each_point_is_logged_whether_measured_or_not(tmp_path: Path) -> None:
    sweep, path = found(simulated=True), tmp_path / "log.duckdb"
    measured = point(True, 32, 1700.0, 0.38)
    log = RunLog(path, "r-1")
    log.put(record("r-1", sweep, measured))
    log.put(record("r-1", sweep, Skipped(variant="MTP on", concurrency=None, reason="s1: out of memory")))
    log.close()
    with reading(path) as connection:
        rows = connection.execute(
            "SELECT run, variant, concurrency, tokens_per_s, joules_per_token, simulated, skipped FROM sweep_points "
            "ORDER BY skipped NULLS FIRST"
        ).fetchall()
    assert rows == [
        ("r-1", "MTP on", 32, 1700.0, 0.38, True, None),
        ("r-1", "MTP on", None, None, None, True, "s1: out of memory"),
    ]


def test_both_arms_of_mtp_have_the_same_radix_cache_setting() -> None:
    off, on = variants(config(flags={"reasoning-parser": "qwen3"}), (False, True), {}, "0.5.11")
    assert not off.mtp
    assert on.mtp
    assert off.config.servers.flags == on.config.servers.flags
    assert off.config.servers.flags["disable-radix-cache"] is True
    assert not off.config.servers.mtp.enabled
    assert on.config.servers.mtp.enabled


def test_varied_flags_are_combined_with_each_other_and_with_mtp() -> None:
    made = variants(config(), (False, True), {"max-running-requests": (16, 48), "chunked-prefill-size": (2048,)}, None)
    assert [each.label for each in made] == [
        "MTP off, max-running-requests=16, chunked-prefill-size=2048",
        "MTP on, max-running-requests=16, chunked-prefill-size=2048",
        "MTP off, max-running-requests=48, chunked-prefill-size=2048",
        "MTP on, max-running-requests=48, chunked-prefill-size=2048",
    ]
    assert made[2].config.servers.flags["max-running-requests"] == 48


def test_servers_that_run_already_cannot_be_varied() -> None:
    running = config(urls=["http://127.0.0.1:1"])
    assert len(variants(running, (), {}, None)) == 1
    with pytest.raises(ConfigError, match="run already"):
        variants(running, (True,), {}, None)


def test_the_crossover_lies_between_the_levels_where_mtp_pays_and_does_not() -> None:
    levels = (1, 4, 8, 16, 32, 64)
    made = answer(found(*(point(mtp, level, tokens_per_s(level, mtp)) for level in levels for mtp in (False, True))))
    (crossover,) = made.crossovers
    assert (crossover.low, crossover.high) == (32, 64)
    assert crossover.concurrency is not None
    truth = next(level for level in range(32, 65) if tokens_per_s(level, True) < tokens_per_s(level, False))
    assert abs(crossover.concurrency - truth) < 3
    assert made.fastest is not None
    assert (made.fastest.mtp, made.fastest.concurrency) == (False, 64)


def test_mtp_that_always_or_never_pays_has_no_crossover() -> None:
    always = answer(found(point(False, 1, 60), point(True, 1, 120), point(False, 8, 400), point(True, 8, 600)))
    assert [(each.concurrency, each.low, each.high) for each in always.crossovers] == [(None, 8, None)]
    never = answer(found(point(False, 1, 60), point(True, 1, 40)))
    assert [(each.concurrency, each.low, each.high) for each in never.crossovers] == [(None, None, 1)]
    assert answer(found(point(True, 1, 40))).crossovers == ()


def test_days_and_kwh_of_the_rest_of_the_job() -> None:
    made = found(point(True, 32, 1000.0, joules=0.36), rows_left=864_000, tokens_per_row=4000.0)
    needs = cost(made, made.points[0])
    assert needs.days == pytest.approx(864_000 * 4000 / 4000.0 / 86400)
    assert needs.energy_kwh == pytest.approx(864_000 * 4000 * 0.36 / 3.6e6)
    assert cost(found(point(True, 32, 1000.0)), made.points[0]).days is None


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_table_never_cuts_a_number(width: int) -> None:
    made = found(point(False, 1, 64.4, 8.37), point(True, 64, 12_161.0, 0.31), rows_left=902_087, tokens_per_row=5000.0)
    out = io.StringIO()
    show(made, Console(file=out, width=width))
    text = out.getvalue()
    assert "…" not in text
    assert "12,161" in text
    assert "8.37" in text
    assert all(len(line) <= width for line in text.splitlines() if "MTP on " in line and "│" in line)


def test_what_was_not_measured_and_what_is_simulated_is_said() -> None:
    skipped = Skipped(variant="MTP on", concurrency=64, reason="above the server's effective cap of 32")
    made = found(point(True, 8, 700.0), skipped=(skipped,), simulated=True, rows_left=10)
    assert "Not measured: MTP on, C=64: above the server's effective cap of 32" in sentences(made)
    assert any("unknown" in line for line in sentences(made))
    out = io.StringIO()
    show(made, Console(file=out, width=120))
    assert "SIMULATED" in out.getvalue()


def test_csv_has_a_line_a_point_and_nothing_for_the_unknown() -> None:
    out = io.StringIO()
    write_csv(found(point(True, 8, 700.0), point(False, 8, 440.0, 1.2)), out)
    first, second = csv.DictReader(out.getvalue().splitlines())
    assert first["joules_per_token"] == ""
    assert float(second["joules_per_token"]) == 1.2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_of_the_simulated_box_finds_its_truth_again(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(
        "".join(json.dumps({"id": str(n), "prompt": f"Q{n}?"}) + "\n" for n in range(200))
    )
    (tmp_path / "run.toml").write_text(
        """
        [model]
        path = "Qwen/Qwen3.6-27B"
        [servers]
        stagger_s = 0.0
        base_port = 33100
        [servers.flags]
        max-running-requests = 64
        [job]
        prompts = ["p.jsonl"]
        output = "out"
        [simulation]
        gpus = 3
        startup_s = 1.0
        output_tokens = 400
        """
    )
    command = [sys.executable, "-m", "genmon", "sweep", "run.toml", "-c", "4,32,64", "--seconds", "30", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["simulated"] is True
    assert made["skipped"] == []
    for each in made["points"]:
        truth = tokens_per_s(each["concurrency"], each["mtp"])
        assert each["tokens_per_s"] == pytest.approx(truth, rel=0.05)
        assert each["ttft_s"] > 0
        assert each["itl_s"] == pytest.approx(each["concurrency"] / truth, rel=0.25)
    assert {(each["mtp"], each["concurrency"]) for each in made["points"]} == {
        (mtp, level) for mtp in (False, True) for level in (4, 32, 64)
    }
    kept = list((tmp_path / "out" / "sweep").glob("*.json"))
    assert [json.loads(path.read_text()) for path in kept] == [made]
    query = (
        "SELECT mtp, concurrency, tokens_per_s FROM sweep_points WHERE name = 'run' AND simulated AND skipped IS NULL"
    )
    asked = [sys.executable, "-m", "genmon", "sql", "--json", query]
    logged = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout
    assert sorted(map(json.loads, logged.splitlines()), key=str) == sorted(
        ({name: each[name] for name in ("mtp", "concurrency", "tokens_per_s")} for each in made["points"]), key=str
    )
