"""The run log: what goes in is there once, whoever is killed and whoever holds the file."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from msgspec.structs import replace

from genmon.config.schema import FlagValue, JobConfig, ModelConfig, RunConfig, ServersConfig
from genmon.errors import LogError, LogLocked
from genmon.runlog.database import SCHEMA, migrate, reading, writing
from genmon.runlog.leftovers import take_in_leftovers
from genmon.runlog.log import RunLog
from genmon.runlog.origin import public_config, secrets_of
from genmon.runlog.records import RECORDS, GpuReading, Request, Run, RunEnd
from genmon.runlog.spool import Spool, segments, spool_root
from genmon.runlog.thin import thin
from tests.simulated import until


def run_record(run: str = "r", **fields: object) -> Run:
    told: dict[str, object] = {
        "run": run,
        "name": "test",
        "model": "m",
        "host": "here",
        "simulated": True,
        "genmon": "0",
        "sglang": None,
        "git_revision": None,
        "project_directory": "",
        "job_directory": "",
        "config": "{}",
        "started_at": 1_700_000_000.0,
        "rows_total": 3,
    }
    return Run(**(told | fields))  # type: ignore[arg-type]


def request(number: int, run: str = "r", trouble: str | None = None) -> Request:
    return Request(
        run=run,
        row_id=f"r{number}",
        position=number,
        attempt=1,
        launch="s0#1",
        simulated=True,
        started_at=1_700_000_000.25 + number,
        latency_s=1.5,
        outcome="done",
        answer_class="complete",
        finish_reason="stop",
        prompt_tokens=5,
        completion_tokens=10,
        reasoning_tokens=None,
        acceptance_length=None,
        trouble=trouble,
    )


def ask(path: Path, query: str) -> list[tuple[object, ...]]:
    with reading(path) as connection:
        return connection.execute(query).fetchall()


def killed_spool(path: Path, rows: range, run: str = "r") -> Path:
    """What an engine leaves that is killed after its spool was written."""
    code = (
        "import os, sys; from pathlib import Path; from tests.test_runlog import *\n"
        f"spool = Spool(spool_root(Path({str(path)!r})) / {run!r}); spool.put(run_record({run!r}))\n"
        f"[spool.put(request(n, {run!r})) for n in {rows!r}]; spool.write(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    return spool_root(path) / run


def test_what_is_put_is_in_the_file_after_close_and_the_spool_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    log = RunLog(path, "r")
    log.put(run_record())
    for number in range(3):
        log.put(request(number))
    log.put(RunEnd(run="r", ended_at=1_700_000_010.0, outcome="finished", reason="every row is done"))
    log.close()
    assert log.trouble is None
    assert list(spool_root(path).iterdir()) == []
    assert ask(path, "SELECT row_id, epoch(started_at) FROM requests ORDER BY position")[1] == ("r1", 1_700_000_001.25)
    assert ask(path, "SELECT state, rows_done, completion_tokens, seconds FROM run_list") == [("finished", 3, 30, 10.0)]


def test_every_field_of_every_record_has_a_column_with_its_table_and_the_table_has_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    with writing(path) as connection:
        rows = connection.execute("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
    for table, kind in RECORDS.items():
        columns = {column for name, column in rows if name == ("runs" if table == "run_ends" else table)}
        fields = set(kind.__struct_fields__)
        assert fields <= columns, table
        if table not in ("runs", "run_ends"):
            assert fields == columns, table


def test_a_killed_engines_spool_is_taken_in_once_whenever_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    folder = killed_spool(path, range(5))
    with next(folder.glob("*.requests.jsonl")).open("ab") as file:
        file.write(b'{"run":"r","row_id":"torn')
    kept = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert take_in_leftovers(path) == 1
    assert not folder.exists()
    assert ask(path, "SELECT state, rows_done FROM run_list") == [("interrupted", 5)]
    folder.mkdir()
    for name, content in kept.items():  # as a kill between commit and deletion leaves it
        (folder / name).write_bytes(content)
    assert take_in_leftovers(path) == 1
    assert take_in_leftovers(path) == 0
    assert ask(path, "SELECT count(*), count(DISTINCT row_id) FROM requests") == [(5, 5)]
    assert ask(path, "SELECT rows_done FROM run_list") == [(5,)]


def test_a_full_disk_is_told_and_nothing_is_torn_when_it_has_room_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "r")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        for number in range(20):
            spool.put(request(number))
        spool.write()
        assert "cannot be written" in str(spool.trouble)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    spool.put(request(20))
    spool.close()
    assert spool.trouble is None
    lines = [json.loads(line) for each in spool.folder.glob("*.jsonl") for line in each.read_text().splitlines()]
    assert [line["row_id"] for line in lines] == [f"r{number}" for number in range(21)]
    spool.release()


def test_a_live_engines_spool_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    spool = Spool(spool_root(path) / "r")
    spool.put(run_record())
    spool.write()
    assert take_in_leftovers(path) == 0
    assert segments(spool.folder) == [1]
    spool.close()
    spool.release()


def test_while_another_process_holds_the_file_the_spool_goes_on_and_the_log_catches_up(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    with writing(path):
        pass
    code = f"import duckdb; c = duckdb.connect({str(path)!r}); print('held', flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(LogLocked, match=rf"held by python.* \(process {holder.pid}\)"), writing(path):
        pass
    log = RunLog(path, "r")
    log.put(run_record())
    log.put(request(1))
    spooled = spool_root(path) / "r"
    until(lambda: bool(segments(spooled)), "spooled")
    holder.communicate("\n")
    until(lambda: not segments(spooled), "caught up")
    log.close()
    assert ask(path, "SELECT rows_done FROM run_list") == [(1,)]


def test_no_secret_reaches_spool_or_file(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    secret = 'sk-"quoted"-0123456789'
    log = RunLog(path, "r", frozenset({secret}))
    log.put(run_record(config=json.dumps({"key": secret})))
    log.put(request(1, trouble=f"Incorrect API key {secret}."))
    log.close()
    assert ask(path, "SELECT trouble FROM requests") == [("Incorrect API key ***.",)]
    assert b"0123456789" not in path.read_bytes()


def test_what_a_run_calls_a_key_or_a_token_is_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    monkeypatch.setenv("MY_KEY", "short")
    config = RunConfig(
        model=ModelConfig(path="m"),
        job=JobConfig(prompts=["p"], output="o"),
        servers=ServersConfig(
            env={"WANDB_API_KEY": "wandb-012345"},
            flags={"admin-api-key": "adm"},
            urls=["http://me:pass@host:1"],
            api_key_env="MY_KEY",
        ),
    )
    assert {"hf_0123456789", "wandb-012345", "short"} <= secrets_of(config)
    public = public_config(config)
    assert not any(word in public for word in ("wandb-012345", '"adm"', "me:pass"))
    assert "WANDB_API_KEY" in public and "host:1" in public


def test_half_a_surrogate_pair_and_a_number_without_bound_keep_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    log = RunLog(path, "r")
    log.put(run_record())
    log.put(request(1, trouble="said \ud800"))
    log.put(replace(request(2), prompt_tokens=1 << 70))
    log.put(request(3))
    log.close()
    assert log.trouble is None
    rows = "SELECT row_id, trouble, prompt_tokens FROM requests ORDER BY position"
    assert ask(path, rows) == [("r1", "said ?", 5), ("r2", None, None), ("r3", None, 5)]


def test_a_damaged_line_of_a_killed_engine_keeps_out_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    folder = killed_spool(path, range(3))
    lines = (folder / "00000001.requests.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:20] + b"\0\0\n"
    (folder / "00000001.requests.jsonl").write_bytes(b"".join(lines))
    assert take_in_leftovers(path) == 1
    assert ask(path, "SELECT row_id FROM requests ORDER BY position") == [("r0",), ("r2",)]
    assert ask(path, "SELECT state, rows_done FROM run_list") == [("interrupted", 2)]


def test_what_cannot_be_taken_in_of_one_engine_keeps_no_other_out(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    folder = killed_spool(path, range(3), run="broken")
    (folder / "00000001.requests.jsonl").unlink()
    (folder / "00000001.requests.jsonl").mkdir()
    log = RunLog(path, "r")
    log.put(run_record())
    log.put(request(1))
    log.close()
    assert log.trouble is None
    assert ask(path, "SELECT run, row_id FROM requests") == [("r", "r1")]
    assert folder.is_dir()


def test_a_key_that_is_a_common_word_hides_that_word_and_no_field(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    log = RunLog(path, "r", frozenset({"trouble"}))
    log.put(run_record())
    log.put(request(1, trouble="no trouble"))
    log.close()
    assert ask(path, "SELECT row_id, trouble FROM requests") == [("r1", "no ***")]


def test_a_tokenizers_path_is_no_secret(tmp_path: Path) -> None:
    flags: dict[str, FlagValue] = {"tokenizer-path": "Qwen/Qwen3.6-27B", "admin-api-key": "sk-0123456789"}
    config = RunConfig(
        model=ModelConfig(path="Qwen/Qwen3.6-27B"),
        job=JobConfig(prompts=["p.jsonl"], output="out"),
        servers=ServersConfig(flags=flags),
    )
    hidden = secrets_of(config)
    assert "sk-0123456789" in hidden and "Qwen/Qwen3.6-27B" not in hidden


def test_a_file_of_a_newer_genmon_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    with writing(path) as connection:
        connection.execute("INSERT INTO schema_version VALUES (99, '9.0', now()::TIMESTAMP)")
    with pytest.raises(LogError, match="newer genmon"), writing(path):
        pass


@pytest.mark.parametrize("version", range(SCHEMA))
def test_every_older_schema_is_brought_up_with_its_rows(tmp_path: Path, version: int) -> None:
    path = tmp_path / "log.duckdb"
    with duckdb.connect(str(path), config={"storage_compatibility_version": "v1.5.0"}) as connection:
        migrate(connection, to=version)
        if version:
            connection.execute("INSERT INTO runs (run, name, started_at) VALUES ('old', 'n', now()::TIMESTAMP)")
    assert ask(path, "SELECT max(version) FROM schema_version") == [(SCHEMA,)]
    assert ask(path, "SELECT run FROM run_list") == ([("old",)] if version else [])


def test_every_table_and_every_figure_is_explained_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    with writing(path):
        pass
    assert ask(path, "SELECT table_name FROM duckdb_tables() WHERE comment IS NULL") == []
    assert ask(path, "SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL") == []
    silent = "SELECT table_name, column_name FROM duckdb_columns() WHERE data_type = 'DOUBLE' AND comment IS NULL"
    tables = "SELECT table_name FROM duckdb_tables()"
    assert ask(path, f"{silent} AND NOT internal AND table_name IN ({tables})") == []


def test_the_file_is_readable_by_duckdb_1_5(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    with writing(path):
        pass
    tags = ask(path, "SELECT tags['storage_version'] FROM duckdb_databases() WHERE path IS NOT NULL")
    assert [str(tag[0]).startswith("v1.5.0") for tag in tags] == [True]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    from genmon.runlog.log import open_log

    tmp_path.chmod(0o500)
    assert "not logged" in str(open_log(tmp_path / "x" / "log.duckdb", "r", frozenset(), 1e9).trouble)


def gpu_reading(second: int, energy_j: float | None = 500.0) -> GpuReading:
    return GpuReading(
        run="r",
        taken_at=1_700_000_000.0 + second,
        host="here",
        gpu_uuid="GPU-1",
        gpu_index=0,
        gpu_name="H200",
        launch="s0#1",
        simulated=True,
        seconds=1.0,
        energy_j=energy_j,
        power_w=500.0 + second % 2,
        power_instant_w=None,
        power_limit_w=700.0,
        power_default_limit_w=700.0,
        sm_clock_mhz=1980,
        temperature_c=60,
        utilization=1.0,
        memory_used_b=1,
        memory_total_b=2,
        reasons=("power cap",),
        trouble=None,
    )


def test_old_samples_become_one_a_minute_and_their_energy_stays_exact(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    log = RunLog(path, "r")
    for second in range(0, 9000, 3):
        log.put(gpu_reading(second, energy_j=second * 0.1))
    log.close()
    total = "SELECT sum(energy_j), sum(seconds), sum(samples) FROM gpu_samples"
    (before,) = ask(path, total)
    bites = 0
    with writing(path) as connection:
        while thin(connection, older_than=1_700_000_000.0 + 7200):
            bites += 1
    assert bites > 1
    (after,) = ask(path, total)
    assert after == pytest.approx(before, rel=1e-12)
    old = "taken_at < make_timestamp(1700007180000000)"
    rows = ask(path, f"SELECT count(*), avg(power_w), any_value(reasons) FROM gpu_samples WHERE {old}")
    assert rows == [(120, pytest.approx(500.5, abs=0.03), ["power cap"])]
    assert ask(path, "SELECT max(samples) FROM gpu_samples WHERE taken_at >= make_timestamp(1700007200000000)") == [
        (1,)
    ]
