"""Launch flags: how they are composed, what each SGLang version makes of them, and which ones an install accepts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from genmon.config.load import load
from genmon.config.schema import FlagValue, JobConfig, ModelConfig, MtpConfig, RunConfig, ServersConfig
from genmon.errors import Refused
from genmon.fleet.flags.compose import cap_requested, compose, run_flags
from genmon.fleet.flags.edit import edit, forbidden
from genmon.fleet.flags.flagset import argv, diff, version_numbers, words
from genmon.fleet.flags.known import table
from genmon.fleet.flags.problems import FlagProblem, problems
from genmon.fleet.flags.speculation import mtp_flags, mtp_off, mtp_on
from genmon.fleet.interpreter import Interpreter, known_flags, probe
from genmon.sim.arguments import parse

QWEN: dict[str, FlagValue] = {"model-path": "Qwen/Qwen3.6-27B", "max-running-requests": 16}
MTP = mtp_flags(MtpConfig(enabled=True))
NO_RADIX: dict[str, FlagValue] = {"disable-radix-cache": True}
CONFIGS = Path(__file__).parent.parent / "configs"


def run(flags: dict[str, FlagValue], *, mtp: bool = False) -> RunConfig:
    return RunConfig(
        model=ModelConfig(path="Qwen/Qwen3.6-27B"),
        job=JobConfig(prompts=["p"], output="o"),
        servers=ServersConfig(flags=flags, mtp=MtpConfig(enabled=mtp)),
    )


def told(found: list[FlagProblem], *, fatal: bool) -> str:
    return " / ".join(each.sentence for each in found if each.fatal is fatal)


def test_a_flag_set_as_arguments() -> None:
    flags: dict[str, FlagValue] = {"a": True, "b": False, "c": 0, "d": 0.5, "e": "x y", "f": ["p", 1]}
    assert argv(flags) == ("--a", "--c", "0", "--d", "0.5", "--e", "x y", "--f", "p", "1")


def test_a_run_is_launched_with_its_own_flags_those_genmon_needs_and_all_of_mtp() -> None:
    arguments = compose(run({"reasoning-parser": "qwen3"}, mtp=True))
    text = " ".join(arguments)
    assert "--model-path Qwen/Qwen3.6-27B --served-model-name Qwen3.6-27B --enable-metrics" in text
    assert "--reasoning-parser qwen3" in text
    assert "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1" in text
    assert "--speculative-num-draft-tokens 4" in text
    assert {"/metrics", "/health", "/v1/loads", "/model_info", "/server_info"} <= set(arguments)
    assert not {"--host", "--port", "--nccl-port"} & set(arguments)
    assert "speculative" not in " ".join(compose(run({})))


def test_what_the_user_wrote_is_launched_even_where_it_is_warned_of() -> None:
    arguments = compose(run({"mamba-scheduler-strategy": "extra_buffer"}, mtp=True))
    assert "--mamba-scheduler-strategy" in arguments
    assert "--disable-radix-cache" not in arguments


def test_cap_requested() -> None:
    assert cap_requested(run_flags(run({"max-running-requests": 128}))) == 128
    assert cap_requested(run_flags(run({}))) is None


def test_version_numbers_are_compared_as_numbers() -> None:
    assert version_numbers("0.5.9") < version_numbers("0.5.11") < version_numbers("0.5.11.post1")


@pytest.mark.parametrize(
    ("version", "flags", "mtp", "fatal", "warning"),
    [
        # MTP off and on, radix cache on and off, strategy: the decision table of 0.5.11 to 0.5.13.
        ("0.5.11", {}, False, "", "switches the overlap scheduler off: disable-radix-cache = true keeps it"),
        ("0.5.11", NO_RADIX, False, "", ""),
        ("0.5.11", {"mamba-scheduler-strategy": "extra_buffer"}, False, "", ""),
        ("0.5.11", {}, True, "MTP does not start with the radix cache and no_buffer (its default)", ""),
        ("0.5.13", {"mamba-scheduler-strategy": "no_buffer"}, True, "with the radix cache and no_buffer: set", ""),
        ("0.5.11", NO_RADIX, True, "", ""),
        ("0.5.11", {"mamba-scheduler-strategy": "extra_buffer"}, True, "", "reported to crash before 0.5.16"),
        ("0.5.11", {**NO_RADIX, "mamba-scheduler-strategy": "extra_buffer"}, False, "exclude each other", ""),
        ("0.5.11", {"mamba-scheduler-strategy": "extra_buffer_lazy"}, False, "has no strategy extra_buffer_lazy", ""),
        # From 0.5.14 on auto is extra_buffer.
        ("0.5.14", {}, False, "", ""),
        ("0.5.15.post1", {}, True, "", "reported to crash before 0.5.16 (this is 0.5.15.post1)"),
        ("0.5.16", {}, True, "", ""),
        ("0.5.23", NO_RADIX, True, "", ""),
        ("0.5.14", {"mamba-scheduler-strategy": "no_buffer"}, False, "does not start with the overlap scheduler", ""),
        ("0.5.23", {"disable-overlap-schedule": True}, False, "", ""),
        ("0.5.23", {**NO_RADIX, "mamba-radix-cache-strategy": "extra_buffer"}, False, "", "has no effect beside"),
        ("0.5.16", {"mamba-radix-cache-strategy": "extra_buffer_lazy"}, True, "takes no extra_buffer_lazy with", ""),
        ("0.5.17", {"mamba-radix-cache-strategy": "extra_buffer_lazy"}, True, "", ""),
        # Renamed flags.
        ("0.5.13", {**NO_RADIX, "mamba-radix-cache-strategy": "auto"}, False, "before 0.5.14 it is --mamba-sched", ""),
        ("0.5.19", {**NO_RADIX, "mamba-scheduler-strategy": "auto"}, False, "", ""),
        ("0.5.20", {**NO_RADIX, "mamba-scheduler-strategy": "auto"}, False, "since 0.5.20 it is --mamba-radix-", ""),
        ("0.5.19", {**NO_RADIX, "cuda-graph-max-bs": 64}, False, "", ""),
        ("0.5.14", {**NO_RADIX, "cuda-graph-max-bs-decode": 64}, False, "", ""),
        ("0.5.23", {**NO_RADIX, "cuda-graph-max-bs": 64}, False, "it is --cuda-graph-max-bs-decode", ""),
        # Known to corrupt.
        ("0.5.23", {**NO_RADIX, "enable-mixed-chunk": True}, False, "", "corrupt about 10 % of the answers"),
    ],
)
def test_what_a_version_makes_of_flags(
    version: str, flags: dict[str, FlagValue], mtp: bool, fatal: str, warning: str
) -> None:
    found = problems({**QWEN, **flags, **(MTP if mtp else {})}, version)
    for sentence, level in ((fatal, True), (warning, False)):
        if sentence:
            assert sentence in told(found, fatal=level)
        else:
            assert told(found, fatal=level) == ""


def test_mtp_without_a_cap_is_told_what_sglang_makes_of_it() -> None:
    flags = {"model-path": "Qwen/Qwen3.6-27B", **NO_RADIX, **MTP}
    assert "SGLang caps it at 48" in told(problems(flags, "0.5.11"), fatal=False)


def test_only_some_of_mtps_numbers_do_not_start() -> None:
    flags = {**QWEN, **NO_RADIX, **MTP}
    del flags["speculative-num-steps"]
    assert "--speculative-num-steps is missing" in told(problems(flags, "0.5.11"), fatal=True)


def test_rules_for_hybrid_models_are_not_said_of_others(tmp_path: Path) -> None:
    """A false FAIL would keep a run that works from starting."""
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "x": 1}')
    dense = {"model-path": str(tmp_path), "max-running-requests": 16, **MTP}
    assert [each.fatal for each in problems(dense, "0.5.11")] == [False]
    assert "needs an MTP head" in told(problems(dense, "0.5.11"), fatal=False)
    unknown = problems({**dense, "model-path": "someone/model"}, "0.5.11")
    assert told(unknown, fatal=True) == ""
    assert "if the model is a hybrid one: on SGLang 0.5.11 MTP does not start" in told(unknown, fatal=False)
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3_5ForConditionalGeneration"]}')
    assert "MTP does not start" in told(problems(dense, "0.5.11"), fatal=True)
    (tmp_path / "config.json").write_text("not JSON")
    assert told(problems(dense, "0.5.11"), fatal=True) == ""


VERSIONS = [None, "0.5.11", "0.5.14", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.23"]
STARTS: list[dict[str, FlagValue]] = [
    {},
    NO_RADIX,
    {"mamba-scheduler-strategy": "extra_buffer"},
    {"mamba-radix-cache-strategy": "extra_buffer_lazy"},
    {"mamba-radix-cache-strategy": "no_buffer", "disable-overlap-schedule": True},
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("flags", STARTS)
def test_mtp_on_starts_and_is_not_warned_of(version: str | None, flags: dict[str, FlagValue]) -> None:
    before = {**QWEN, **flags}
    on = mtp_on(before, version)
    assert before == {**QWEN, **flags}
    assert on.items() >= MTP.items()
    for each in [version] if version else [v for v in VERSIONS if v]:
        rules = [found for found in problems(on, each) if "has no --" not in found.sentence]
        assert rules == []


def test_mtp_on_leaves_a_radix_cache_that_goes_with_it() -> None:
    assert "disable-radix-cache" not in mtp_on(QWEN, "0.5.16")
    assert mtp_on(QWEN, "0.5.11")["disable-radix-cache"] is True


def test_mtp_on_takes_the_numbers_given() -> None:
    on = mtp_on(QWEN, "0.5.16", MtpConfig(steps=2, topk=1, draft_tokens=3))
    assert (on["speculative-num-steps"], on["speculative-num-draft-tokens"]) == (2, 3)


def test_mtp_off_takes_all_of_it_away_and_nothing_else() -> None:
    assert mtp_off(mtp_on({**QWEN, **NO_RADIX}, "0.5.11")) == {**QWEN, **NO_RADIX}
    assert mtp_off({**QWEN, **MTP, "speculative-attention-mode": "decode"}) == QWEN


@pytest.mark.parametrize("version", ["0.5.11", "0.5.23"])
@pytest.mark.parametrize("flags", STARTS)
@pytest.mark.parametrize("mtp", [False, True])
def test_the_simulated_server_refuses_what_is_said_not_to_start(
    version: str, flags: dict[str, FlagValue], mtp: bool
) -> None:
    """Two readings of the same source, held against each other."""
    whole = {**QWEN, **flags, **(MTP if mtp else {})}
    fatal = told(problems(whole, version), fatal=True)
    try:
        parse(list(argv(whole)), version)
    except (ValueError, AssertionError, TypeError, SystemExit):
        assert fatal != ""
    else:
        assert fatal == ""


def test_the_ready_run_files_start_on_the_versions_they_name() -> None:
    for path in sorted(CONFIGS.glob("*.toml")):
        assert told(problems(run_flags(load(path)), "0.5.11"), fatal=True) == "", path.name
    for name in ("qwen3.6-27b-h200", "qwen3.6-27b-b200"):
        assert problems(run_flags(load(CONFIGS / f"{name}.toml")), "0.5.23") == []


def test_the_reference_run_file_says_rightly_how_to_turn_mtp_on(tmp_path: Path) -> None:
    text = (CONFIGS / "qwen3.6-27b-rtx-pro-6000.toml").read_text()
    assert "#   remove mamba-scheduler-strategy" in text
    kept = [line for line in text.splitlines() if not line.startswith("mamba-scheduler-strategy")]
    changed = "\n".join(kept).replace(
        "max-running-requests = 128", "max-running-requests = 16\ndisable-radix-cache = true"
    )
    changed = changed.replace("# [servers.mtp]", "[servers.mtp]").replace("# enabled = true", "enabled = true")
    (tmp_path / "run.toml").write_text(changed)
    config = load(tmp_path / "run.toml")
    assert config.servers.mtp.enabled
    assert problems(run_flags(config), "0.5.11") == []


# The interpreter. An install is a folder with a package, as pip leaves it.

NEW_STYLE = """
class ServerArgs:
    model_path: A[str, Arg(help="x", aliases=["--model"])]
    context_length: A[
        Optional[int],
        "over several lines",
    ] = None
    tp_size: A[int, Arg(cli_name="--tensor-parallel-size", aliases=["--tp-size", "--tp"], help="x")] = 1
    hidden: A[int, Arg(no_cli=True)] = 1
    enable_tf32: A[bool, Arg(action=argparse.BooleanOptionalAction, help="x")] = True
    plain: int = 3
    unannotated: A[int] = 3

def message():
    raise ValueError("--never-a-flag is none")
"""


def install(folder: Path, version: str, source: str, fields: str = "") -> Path:
    """A package folder; its `python` script is an interpreter that has it."""
    site = folder / "site"
    (site / "sglang/srt/arg_groups/fields").mkdir(parents=True)
    (site / "sglang/__init__.py").write_text("raise RuntimeError('SGLang must not be imported')")
    (site / "sglang/srt/server_args.py").write_text(source)
    (site / "sglang/srt/arg_groups/fields/more.py").write_text(fields)
    (site / f"sglang-{version}.dist-info").mkdir()
    (site / f"sglang-{version}.dist-info/METADATA").write_text(
        f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def many_arguments(count: int = 120) -> str:
    return "".join(f'    parser.add_argument("--flag-{number}", type=int)\n' for number in range(count))


def test_an_interpreter_tells_its_sglang_without_importing_it(tmp_path: Path) -> None:
    python = install(tmp_path, "0.5.11", "")
    found = probe(str(python))
    assert (found.path, found.sglang, found.trouble) == (str(python), "0.5.11", None)
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert msgspec.json.encode(found)  # what is in it can be written to a log


def test_sglang_is_found_where_the_run_files_pythonpath_has_it(tmp_path: Path) -> None:
    """A server is launched with servers.env: the interpreter is asked with it too."""
    install(tmp_path, "0.5.11", "")
    assert probe(sys.executable).sglang != "0.5.11"
    assert probe(sys.executable, {"PYTHONPATH": str(tmp_path / "site")}).sglang == "0.5.11"


def test_a_link_is_not_followed_and_a_relative_path_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment's python is a link: the interpreter behind it has none of its packages."""
    install(tmp_path, "0.5.11", "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(tmp_path / "python")
    monkeypatch.chdir(tmp_path)
    assert probe("bin/python").path == str(tmp_path / "bin/python")


def test_interpreters_that_are_none(tmp_path: Path) -> None:
    assert "is no interpreter that can be run" in (probe(str(tmp_path / "gone")).trouble or "")
    script = tmp_path / "python"
    for text in ("#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 3\n", "#!/bin/sh\n"):
        script.write_text(text)
        script.chmod(0o755)
        found = probe(str(script))
        assert found.sglang is None
        assert "did not answer as a Python does" in (found.trouble or "")


def test_an_interpreter_without_sglang(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    script.chmod(0o755)
    found = probe(str(script))
    assert found.sglang is None
    assert "has no SGLang installed" in (found.trouble or "")


def test_flags_of_the_older_style(tmp_path: Path) -> None:
    source = 'def add_cli_args(parser):\n    parser.add_argument("--tp-size", "--tp", type=int)\n' + many_arguments()
    known = known_flags(probe(str(install(tmp_path, "0.5.11", source))))
    assert known is not None
    assert {"tp-size", "tp", "flag-0", "flag-119"} <= known
    assert len(known) == 122


def test_flags_of_the_newer_style(tmp_path: Path) -> None:
    fields = "class Spec:\n" + "".join(f'    field_{number}: A[int, "help"] = 1\n' for number in range(120))
    known = known_flags(probe(str(install(tmp_path, "0.5.23", NEW_STYLE, fields))))
    assert known is not None
    there = {name for name in known if not name.startswith("field-")}
    assert there == {
        *("model-path", "model", "context-length", "tensor-parallel-size", "tp-size", "tp"),
        *("enable-tf32", "no-enable-tf32"),
    }
    assert len(known) == 128


def test_a_source_that_is_not_understood_is_unknown_not_empty(tmp_path: Path) -> None:
    assert known_flags(Interpreter("python")) is None
    assert known_flags(Interpreter("python", folder=str(tmp_path))) is None
    assert known_flags(probe(str(install(tmp_path, "0.9.0", "def (:")))) is None


@pytest.mark.sglang
@pytest.mark.skipif("GENMON_SGLANG_PYTHON" not in os.environ, reason="GENMON_SGLANG_PYTHON names no interpreter")
@pytest.mark.timeout(240)
def test_flags_read_are_those_of_the_real_parser() -> None:
    python = os.environ["GENMON_SGLANG_PYTHON"]
    question = (
        "import argparse, json; from sglang.srt.server_args import ServerArgs; p = argparse.ArgumentParser(); "
        "ServerArgs.add_cli_args(p); "
        "print(json.dumps([o[2:] for a in p._actions for o in a.option_strings if o.startswith('--')]))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "sglang_cpu/shim")}
    answered = subprocess.run(
        [python, "-c", question], capture_output=True, env=env, text=True, check=True, timeout=200
    )
    assert set(known_flags(probe(python)) or ()) == set(json.loads(answered.stdout.splitlines()[-1])) - {"help"}


def model(folder: Path, architecture: str, **more: int) -> dict[str, FlagValue]:
    """Flags of a model whose config.json names this architecture."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **more}))
    return {"model-path": str(folder), "max-running-requests": 16}


def test_mtp_goes_on_as_the_model_family_takes_it(tmp_path: Path) -> None:
    deepseek = mtp_on(model(tmp_path / "d", "DeepseekV3ForCausalLM", num_nextn_predict_layers=1), "0.5.11")
    assert "disable-radix-cache" not in deepseek
    assert deepseek["speculative-algorithm"] == "NEXTN"
    for architecture in ("Qwen3_5ForConditionalGeneration", "Qwen3NextForCausalLM"):
        assert mtp_on(model(tmp_path / "q", architecture), "0.5.11")["disable-radix-cache"] is True
    for flags in (
        model(tmp_path / "l", "LlamaForCausalLM"),
        model(tmp_path / "n", "DeepseekV3ForCausalLM", num_nextn_predict_layers=0),
    ):
        with pytest.raises(Refused, match="no MTP head"):
            mtp_on(flags, "0.5.11")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"speculative-algorithm": "EAGLE3"}, "EAGLE3 needs a draft model"),
        ({"speculative-algorithm": "DFLASH"}, "DFLASH needs a draft model"),
        ({"speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "d"}, None),
        ({"speculative-algorithm": "NGRAM"}, "corrupt the output of hybrid models"),
        ({"speculative-algorithm": "NEXTN", "speculative-num-steps": 3}, "all three numbers or none"),
    ],
)
def test_each_speculation_algorithm_needs_what_it_needs(flags: dict[str, FlagValue], sentence: str | None) -> None:
    fatal = told(problems({**QWEN, **NO_RADIX, **flags}, "0.5.23"), fatal=True)
    assert (sentence in fatal) if sentence else not fatal


def test_mtp_on_starts_on_every_simulated_version_and_off_gives_the_same_arm() -> None:
    """The comparison is fair: turned off again, the radix cache stays as it was with MTP."""
    for version in ("0.5.11", "0.5.23"):
        on = mtp_on(QWEN, version)
        parse(list(argv({**on, "port": 1})), version)
        assert mtp_off(on) == {**QWEN, **({"disable-radix-cache": True} if version == "0.5.11" else {})}


def test_an_edit_changes_mtp_first_then_takes_out_then_puts_in() -> None:
    flags = edit(
        {**QWEN, **NO_RADIX},
        mtp=True,
        unset=("--max-running-requests",),
        set={"speculative-num-steps": "5"},
        version="0.5.11",
    )
    assert flags["speculative-num-steps"] == 5
    assert "max-running-requests" not in flags
    assert edit({}, set={"cuda-graph-bs": "1 2 4", "x": "0.5", "y": '{"a": 1}'}) == {
        "cuda-graph-bs": [1, 2, 4],
        "x": 0.5,
        "y": '{"a": 1}',
    }
    assert diff({"a": 16, "c": True}, {"a": 64, "b": "x"}) == "−c, a 16→64, +b x"
    assert words({"api-key": "hush", "off": False, "on": True}) == ("api-key ***", "on")


def test_what_would_not_start_is_said_before_anything_is_stopped() -> None:
    known = table("0.5.11")
    assert known is not None
    assert forbidden({**QWEN, "max-runing-requests": 1}, "0.5.11", known) == (
        "SGLang 0.5.11 has no flag --max-runing-requests; did you mean --max-running-requests?"
    )
    renamed = forbidden({**QWEN, **NO_RADIX, "mamba-scheduler-strategy": "auto"}, "0.5.23", table("0.5.23"))
    assert renamed is not None
    assert renamed.endswith("it is --mamba-radix-cache-strategy")
    assert forbidden({**QWEN, **NO_RADIX}, "0.5.11", known) is None
    assert "does not start with the radix cache" in str(forbidden({**QWEN, **MTP}, "0.5.11", known))
