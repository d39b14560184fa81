"""Where tells are seen: lines of a batch run, genmon status, genmon tells; what the engine knows for them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from genmon.batch.lines import LineView
from genmon.cli import genmon
from genmon.cli.tells import rule_lines
from genmon.config.load import load
from genmon.engine.facts import run_facts
from genmon.errors import ConfigError
from genmon.fleet.model import has_mtp_head
from genmon.status import status_lines
from genmon.tells.table import shipped
from genmon.tells.watch import Watch
from tests.scenarios import FACTS, Box

RUN = """\
[model]
path = "Qwen/Qwen3.6-27B"
[job]
prompts = ["p.jsonl"]
output = "out"
[tells]
rules = "mine.toml"
"""


def told() -> Watch:
    watching = Watch(shipped(), FACTS)
    for state in Box(running=1, mtp=False).states(40):
        watching.see(state)
    return watching


def test_a_batch_run_has_a_line_when_a_tell_comes_up_and_one_when_it_is_over() -> None:
    [state] = Box(running=1, mtp=False).states(0)
    out, view = io.StringIO(), None
    view = LineView(out)
    with_tell = replace(state, tells=told().tells)
    for each in (state, with_tell, with_tell, state):
        view.show(each)
    lines = [line.split("  ", 1)[1] for line in out.getvalue().splitlines() if "MTP is off" in line]
    assert lines == [
        "look: GPU 0 draws 539 of 700 W at C=1 and MTP is off (turn it on: m)",
        "over: GPU 0 draws 539 of 700 W at C=1 and MTP is off",
    ]


def test_status_says_what_is_wrong_and_what_was_not_checked() -> None:
    watching = told()
    [state] = Box(running=1, mtp=False).states(0)
    lines = status_lines(replace(state, tells=watching.tells, not_checked=watching.not_checked), "here")
    assert "  look: GPU 0 draws 539 of 700 W at C=1 and MTP is off (turn it on: m)" in lines
    assert any(line.startswith("  not checked: ") and "late" in line for line in lines)


def test_the_table_with_where_each_rule_stands() -> None:
    watching = told()
    [state] = Box().states(0)
    lines = list(rule_lines(shipped(), replace(state, tells=watching.tells, not_checked=watching.not_checked)))
    stands = {line[5:].split()[1]: line[:5].strip() for line in lines if not line.startswith("      ")}
    assert (stands["mtp-off"], stands["wedged"], stands["late"]) == ("TOLD", "ok", "?")
    assert "      not checked: not known: deadline_s (tells.deadline in the run file)" in lines


def test_genmon_tells_lists_the_rules_of_a_run_file_too(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "mine.toml").write_text("[grammar]\noff = true\n")
    everything = CliRunner().invoke(genmon, ["tells"])
    assert everything.exit_code == 0
    assert "look  mtp-off" in everything.output and "[MTP on]" in everything.output
    assert "grammar " in everything.output
    mine = CliRunner().invoke(genmon, ["tells", str(tmp_path / "run.toml")])
    assert "grammar " not in mine.output
    assert "power_fraction" in CliRunner().invoke(genmon, ["tells", "--inputs"]).output


def test_rules_are_relative_to_the_run_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    assert load(tmp_path / "run.toml").tells.rules == str(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('deadline = "tomorrow"', "line 8: tells.deadline is 'tomorrow': write it as 2026-12-24T18:00."),
        ('webhook = "example.com"', "line 8: tells.webhook is 'example.com': write a URL, https://host/path."),
        ('notify = "loud"', "line 8: tells.notify cannot be 'loud'"),
    ],
)
def test_what_is_wrong_with_the_section(line: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN + line + "\n")
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "run.toml")
    assert sentence in str(refused.value)


def test_what_is_known_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        RUN + 'deadline = "2026-12-24T18:00+00:00"\n[servers.flags]\nquantization = "fp8"\n'
    )
    facts = run_facts(load(tmp_path / "run.toml"))
    assert (facts.model, facts.quantisation, facts.mtp_head) == ("Qwen3.6-27B", "fp8", True)
    assert facts.deadline == 1798135200.0


@pytest.mark.parametrize(
    ("card", "head"),
    [
        ({"text_config": {"mtp_num_hidden_layers": 1}}, True),
        ({"text_config": {"mtp_num_hidden_layers": 0}}, False),
        ({"num_nextn_predict_layers": 1}, True),
        ({"architectures": ["LlamaForCausalLM"]}, None),
    ],
)
def test_whether_a_model_has_an_mtp_head(card: dict[str, object], head: bool | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(card))
    assert has_mtp_head(str(tmp_path)) is head


def test_a_model_by_its_name() -> None:
    assert has_mtp_head("Qwen/Qwen3.6-27B") is True
    assert has_mtp_head("meta-llama/Llama-3.1-8B") is None
