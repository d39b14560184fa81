"""Command-line options over a run file, through a command that has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from genmon.config.load import load
from genmon.config.overrides import overrides_from, run_options
from genmon.config.schema import RunConfig
from genmon.errors import ConfigError

RUN_FILE = """\
[model]
path = "Qwen/Qwen3.6-27B"
[servers]
gpus = [0, 1]
[servers.flags]
context-length = 8192
[servers.mtp]
enabled = true
[job]
prompts = ["p.jsonl"]
output = "out"
[sampling]
thinking = true
"""

Run = Callable[..., RunConfig]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What a run file and these options come to, given from another folder than the file's."""
    (tmp_path / "files").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "files/run.toml"
    path.write_text(RUN_FILE)

    def with_options(*arguments: str) -> RunConfig:
        found: list[RunConfig] = []

        @click.command()
        @run_options
        def command(**options: object) -> None:
            found.append(load(path, overrides_from(options)))

        result = CliRunner().invoke(command, arguments, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        return found[0]

    return with_options


def test_no_option_changes_nothing(run: Run, tmp_path: Path) -> None:
    assert run() == load(tmp_path / "files/run.toml")
    assert run("--resume") == run()


def test_each_option_sets_its_key(run: Run) -> None:
    config = run(
        *("--model", "other/model", "--max-tokens", "100", "--temperature", "0.5", "--top-p", "0.9", "--top-k", "20"),
        *("--min-p", "0.1", "--seed", "7", "--num-samples", "50", "--samples-per-prompt", "4", "--shard-size", "10"),
        *("--concurrency", "12"),
    )
    sampling = config.sampling
    assert config.model.path == "other/model"
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (100, 0.5, 0.9)
    assert (sampling.top_k, sampling.min_p, sampling.seed) == (20, 0.1, 7)
    assert (config.job.limit, config.job.samples, config.job.shard_size) == (50, 4, 10)
    assert config.workers.concurrency == 12
    assert sampling.thinking is True


def test_concurrency_may_be_auto_and_nothing_else_in_words(run: Run) -> None:
    assert run("--concurrency", "auto").workers.concurrency == "auto"
    for wrong in ("many", "1.5", "-1", "²"):
        with pytest.raises(ConfigError, match="option --concurrency must be a number or auto"):
            run("--concurrency", wrong)


def test_paths_are_relative_to_where_the_command_is_given(run: Run, tmp_path: Path) -> None:
    config = run("--input-file-path", "a.jsonl", "--input-file-path", "../b/*.jsonl", "--output-file-path", "o")
    assert config.job.prompts == [str(tmp_path / "here/a.jsonl"), str(tmp_path / "b/*.jsonl")]
    assert config.output == tmp_path / "here/o"
    assert run("--output", "o").output == tmp_path / "here/o"


def test_a_model_folder_is_found_from_here(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here/weights").mkdir()
    assert run("--model", "weights").model.path == str(tmp_path / "here/weights")


def test_server_addresses_take_the_place_of_what_would_be_launched(run: Run) -> None:
    servers = run("--server-address", "10.0.0.1:30000", "--server-address", "http://box:30001").servers
    assert servers.urls == ["http://10.0.0.1:30000", "http://box:30001"]
    assert servers.gpus == "all"
    assert servers.flags == {}
    assert not servers.mtp.enabled


@pytest.mark.parametrize(("word", "thinking"), [("save", True), ("disable", False), ("none", None)])
def test_reasoning(run: Run, word: str, thinking: bool | None) -> None:
    assert run("--reasoning", word).sampling.thinking is thinking


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--num-samples", "0"), r"^option --num-samples: job\.limit must be at least 1, not 0\.$"),
        (("--max-tokens", "9000"), r"^option --max-tokens: .*leaves no room for a prompt in context-length = 8192"),
        (("--server-address", "box:port"), r"^option --server-address: servers\.urls\[0\] is 'http://box:port'"),
    ],
)
def test_a_wrong_option_is_named(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        run(*arguments)


def test_an_option_of_the_wrong_kind_is_clicks_own_error(run: Run) -> None:
    with pytest.raises(click.BadParameter):
        run("--max-tokens", "many")
