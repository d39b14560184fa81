"""`genmon init`: a run file for this machine that loads as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from genmon.cli import genmon
from genmon.config.load import load
from genmon.config.schema import RunConfig
from genmon.config.starter import starter
from genmon.errors import ConfigError
from genmon.fleet.flags.compose import run_flags
from genmon.fleet.flags.problems import problems
from genmon.gpu.source import GpuInfo

GIB = 1 << 30


def cards(count: int, name: str, memory_gib: int | None, limit_w: float | None = 600) -> list[GpuInfo]:
    memory_b = memory_gib * GIB if memory_gib else None
    return [
        GpuInfo(index=each, uuid=f"GPU-{each}", name=name, memory_total_b=memory_b, power_limit_w=limit_w)
        for each in range(count)
    ]


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interpreter but those that a test makes."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


def written(folder: Path, gpus: list[GpuInfo]) -> tuple[str, RunConfig]:
    """The starter for a folder, and what it loads to from there."""
    text = starter(gpus, folder)
    path = folder / "run.toml"
    path.write_text(text)
    return text, load(path)


def virtual_environment(folder: Path, *, sglang: bool) -> Path:
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin/python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    if sglang:
        (folder / "lib/python3.11/site-packages/sglang").mkdir(parents=True)
    return python


@pytest.mark.parametrize(
    ("gpus", "requests"),
    [
        ([], 16),
        (cards(1, "RTX PRO 6000", 96), 16),
        (cards(4, "RTX PRO 6000", 96), 16),
        (cards(8, "H200", 141), 32),
        (cards(2, "B200", 180), 32),
        (cards(1, "H200", 141) + cards(1, "RTX PRO 6000", 96), 16),
        (cards(2, "unknown", None, None), 16),
    ],
)
def test_it_loads_and_its_flags_start(tmp_path: Path, gpus: list[GpuInfo], requests: int) -> None:
    _, config = written(tmp_path, gpus)
    assert config.servers.gpus == (list(range(len(gpus))) if gpus else "all")
    assert config.servers.flags["max-running-requests"] == requests
    assert config.servers.mtp.enabled
    for version in ("0.5.11", "0.5.16", "0.5.23"):
        assert problems(run_flags(config), version) == []


def test_it_says_what_it_saw(tmp_path: Path) -> None:
    text, _ = written(tmp_path, cards(2, "RTX PRO 6000", 96, 450))
    assert "#   GPU 1: RTX PRO 6000, 96 GiB, power limit 450 W" in text
    assert "does not fit" not in text
    assert "no GPU was found" in written(tmp_path, [])[0]
    assert "does not fit on one of these" in written(tmp_path, cards(1, "RTX 4090", 24))[0]
    assert "GPU 0: unknown\n" in written(tmp_path, cards(1, "unknown", None, None))[0]


def test_it_names_the_prompts_that_are_there(tmp_path: Path) -> None:
    assert written(tmp_path, [])[1].job.prompts == [str(tmp_path / "prompts.jsonl")]
    for name in ("b.jsonl", 'a "quoted" ä.parquet', "c.jsonl.zst", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder.jsonl").mkdir()
    names = ['a "quoted" ä.parquet', "b.jsonl", "c.jsonl.zst"]
    assert written(tmp_path, [])[1].job.prompts == [str(tmp_path / name) for name in names]
    for number in range(20):
        (tmp_path / f"{number}.jsonl").touch()
    patterns = ["*.jsonl", "*.jsonl.zst", "*.parquet"]
    assert written(tmp_path, [])[1].job.prompts == [str(tmp_path / pattern) for pattern in patterns]


def test_it_takes_the_interpreter_that_has_sglang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(tmp_path, [])[1].servers.python == "python"
    virtual_environment(tmp_path / ".venv", sglang=False)
    assert written(tmp_path, [])[1].servers.python == "python"
    other = virtual_environment(tmp_path / "other", sglang=True)
    monkeypatch.setenv("PATH", str(other.parent))
    assert written(tmp_path, [])[1].servers.python == str(other)
    active = virtual_environment(tmp_path / "active", sglang=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
    assert written(tmp_path, [])[1].servers.python == str(active)
    here = virtual_environment(tmp_path / "venv", sglang=True)
    assert written(tmp_path, [])[1].servers.python == str(here)


def test_prompts_are_named_from_where_the_run_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "p.jsonl").write_text('{"prompt": "Q?"}\n')
    result = CliRunner().invoke(genmon, ["init", "-o", "sub/run.toml"])
    assert result.exit_code == 0, result.output
    config = load(tmp_path / "sub/run.toml")
    assert [Path(each).resolve() for each in config.job.prompts] == [tmp_path / "p.jsonl"]
    assert config.output == tmp_path / "sub/runs/first"


def test_the_command_writes_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(genmon, ["init", "-o", "run.toml"])
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "run.toml").output == tmp_path / "runs/first"
    before = (tmp_path / "run.toml").read_bytes()
    again = CliRunner().invoke(genmon, ["init", "-o", "run.toml"])
    assert isinstance(again.exception, ConfigError)
    assert (tmp_path / "run.toml").read_bytes() == before
