"""What a person asks the run log: through the commands, on a log with two runs whose figures are known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from genmon.cli import genmon
from genmon.errors import LogError
from genmon.runlog.log import RunLog
from genmon.runlog.records import Launch, RunEnd, ServerReading
from tests.test_runlog import gpu_reading, killed_spool, request, run_record

_START = 1_700_000_000.0


def launch(run: str, number: int, flags: dict[str, str]) -> Launch:
    return Launch(
        run=run,
        launch=f"s0#{number}",
        server="s0",
        number=number,
        host="here",
        gpu_index=0,
        gpu_uuid="GPU-1",
        simulated=True,
        external=False,
        sglang="0.5.11",
        pid=1,
        argv=(),
        flags=flags,
        flag_set=f"flags{len(flags)}",
        mtp="speculative-algorithm" in flags,
        cap=32,
        started_at=_START + (number - 1) * 100,
        ready_s=9.0,
        ended_at=None,
        end_reason=None,
    )


def server_reading(run: str, number: int, second: int, tokens: int) -> ServerReading:
    return ServerReading(
        run=run,
        taken_at=_START + second,
        launch=f"s0#{number}",
        simulated=True,
        phase="ready",
        seconds=1.0,
        tokens=tokens,
        tokens_per_s=float(tokens),
        in_flight=8,
        running=8,
        queued=0,
        acceptance_length=2.8 if number == 2 else None,
        kv_usage=None,
        mamba_usage=None,
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run, MTP turned on half-way: 1000 → 1200 tokens/s, 500 → 480 W."""
    path = tmp_path_factory.mktemp("log") / "log.duckdb"
    run = "night-20231114-2213"
    writer = RunLog(path, run)
    writer.put(run_record(run, name="night", started_at=_START))
    plain = {"max-running-requests": "32"}
    writer.put(launch(run, 1, plain))
    writer.put(launch(run, 2, {**plain, "speculative-algorithm": "NEXTN"}))
    for second in range(200):
        number, wobble = 1 + second // 100, second // 10 % 2
        tokens = (1000 if number == 1 else 1200) + (10 if wobble else -10)
        writer.put(server_reading(run, number, second, tokens))
        energy_j = 500.0 if number == 1 else 480.0
        writer.put(replace(gpu_reading(second, energy_j), run=run, launch=f"s0#{number}"))
    for number in range(20):
        writer.put(request(number, run))
    writer.put(replace(request(20, run), outcome="retry", answer_class="loop"))
    writer.put(RunEnd(run=run, ended_at=_START + 200, outcome="finished", reason="every row is done"))
    writer.close()
    return path


def ask(log: Path, *words: str) -> Result:
    return CliRunner().invoke(genmon, [*words, "--log", str(log)], catch_exceptions=False)


def test_runs_lists_state_rows_rates_and_cost(log: Path) -> None:
    said = ask(log, "runs").output.splitlines()
    assert said[0].split() == ["run", "state", "rows", "tok/s", "W/GPU", "J/token", "accept", "kWh", "took"]
    assert said[1].split()[:4] == ["night-20231114-2213", "finished", "SIMULATED", "20/3"]
    (line,) = map(json.loads, ask(log, "runs", "--json").output.splitlines())
    assert line["energy_kwh"] == pytest.approx(98_000 / 3.6e6)
    assert line["power_w"] == pytest.approx(490.0)
    assert line["acceptance_length"] == pytest.approx(2.8)


def test_compare_puts_the_flag_diff_on_top_and_every_figure_with_n_and_interval(log: Path) -> None:
    found = json.loads(ask(log, "compare", "night", "--json").output)
    assert [(each["flag"], each["a"], each["b"]) for each in found["flags"]] == [
        ("speculative-algorithm", None, "NEXTN")
    ]
    before, after = found["a"]["figures"], found["b"]["figures"]
    assert before["tokens_per_s"]["n"] == after["tokens_per_s"]["n"] == 10
    assert before["tokens_per_s"]["mean"] == pytest.approx(1000)
    # Ten blocks at ±10 around the mean: standard error 3.333, Student's t for 9 degrees of freedom 2.262.
    assert before["tokens_per_s"]["high"] - 1000 == pytest.approx(3.333 * 2.262, rel=0.01)
    assert after["joules_per_token"]["mean"] == pytest.approx(480 / 1200)
    change = {each["figure"]: each for each in found["differences"]}["tokens_per_s"]
    assert change["change"] == pytest.approx(0.2)
    assert change["low"] < 0.2 < change["high"]
    text = ask(log, "compare", "night/s0#1", "night/s0#2").output
    assert text.index("speculative-algorithm") < text.index("tokens/s a server")
    assert re.search(r"tokens/s a server +1000 ± 8 \(10\) +1200 ± 8 \(10\) +\+20\.0 % \(\+18\.\d to \+21\.\d\)", text)
    assert "SIMULATED" in text


def test_show_and_report_say_simulated_and_hold_launches_and_answers(log: Path, tmp_path: Path) -> None:
    shown = ask(log, "show", "last").output
    assert "SIMULATED" in shown and "s0#2" in shown and "loop" in shown
    page = tmp_path / "page.html"
    assert ask(log, "report", "night", "-o", str(page)).exit_code == 0
    html = page.read_text()
    assert re.search(r"<title>SIMULATED · night", html)
    assert html.count("<polyline") >= 3 and html.count('class="mark"') == 6
    assert not re.search(r"<script|https?://|src=", html)
    assert "prefers-color-scheme: dark" in html


def test_sql_answers_as_table_csv_json_and_parquet(log: Path, tmp_path: Path) -> None:
    query = "SELECT launch, count(*) AS n FROM server_samples GROUP BY launch ORDER BY launch;"
    assert "s0#1" in ask(log, "sql", query).output
    csv = ask(log, "sql", query, "--format", "csv").output
    assert csv.splitlines() == ["launch,n", '"s0#1",100', '"s0#2",100']
    lines = ask(log, "sql", query, "--json").output
    assert [json.loads(line)["n"] for line in lines.splitlines()] == [100, 100]
    target = tmp_path / "x.parquet"
    ask(log, "sql", query, "--format", "parquet", "-o", str(target))
    assert duckdb.read_parquet(str(target)).sum("n").fetchall() == [(200,)]


def test_a_killed_run_is_listed_as_interrupted_with_all_that_it_spooled(tmp_path: Path) -> None:
    path = tmp_path / "log.duckdb"
    killed_spool(path, range(5))
    (line,) = map(json.loads, ask(path, "runs", "--json").output.splitlines())
    assert (line["state"], line["rows_done"]) == ("interrupted", 5)


def test_a_wrong_question_is_a_sentence(log: Path, tmp_path: Path) -> None:
    for words, sentence in (
        (("sql", "SELECT foo FROM runs"), "foo"),
        (("show", "nobody"), "There is no run nobody"),
        (("compare", "night/s9#1", "night"), "no launch or flag set s9#1"),
    ):
        with pytest.raises(LogError, match=sentence):
            ask(log, *words)
    with pytest.raises(LogError, match="There is no run log"):
        ask(tmp_path / "none.duckdb", "runs")


def test_a_query_cannot_change_the_log(log: Path) -> None:
    with pytest.raises(LogError):
        ask(log, "sql", "DELETE FROM runs")
