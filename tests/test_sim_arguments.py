"""Which flags each version takes, what it makes of them, and how many requests it then runs at once."""

from __future__ import annotations

import pytest

from genmon.sim.arguments import Arguments, lacks_memory, parse

NEXTN = ["--speculative-algorithm", "NEXTN"]
THREE = [
    *("--speculative-num-steps", "3"),
    *("--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "4"),
]
RADIX_OFF = ["--disable-radix-cache"]
OLD, NEW = "0.5.11", "0.5.23"
OLD_BUFFER = ["--mamba-scheduler-strategy", "extra_buffer"]
NEW_LAZY = ["--mamba-radix-cache-strategy", "extra_buffer_lazy"]


def started(version: str, *flags: str) -> Arguments:
    return parse(["--model-path", "Qwen/Qwen3.6-27B", *flags], version)


@pytest.mark.parametrize(
    ("version", "flags", "cap"),
    [
        (OLD, [*RADIX_OFF, "--max-running-requests", "128"], 128),
        (OLD, ["--max-running-requests", "128"], 26),  # no_buffer: 3 slots a request
        (OLD, [*OLD_BUFFER, "--max-running-requests", "128"], 16),  # extra_buffer: 5
        (OLD, [*OLD_BUFFER, "--max-running-requests", "8"], 8),
        (OLD, [*RADIX_OFF, *NEXTN, *THREE], 48),  # speculation, nothing asked for
        (OLD, [*RADIX_OFF, *NEXTN, *THREE, "--max-running-requests", "64"], 64),
        (NEW, [*NEXTN, *THREE, "--max-running-requests", "128"], 16),  # auto is extra_buffer
        (NEW, [*NEXTN, *THREE, *RADIX_OFF], 48),
        (NEW, [*RADIX_OFF, *NEW_LAZY, "--max-running-requests", "64"], 64),  # refused before 0.5.14 only
    ],
)
def test_the_cap_granted(version: str, flags: list[str], cap: int) -> None:
    assert started(version, *flags).cap == cap


@pytest.mark.parametrize(
    ("version", "flags", "words"),
    [
        (OLD, [*NEXTN, *THREE], "not compatible with radix cache when using --mamba-scheduler-strategy no_buffer"),
        (OLD, [*RADIX_OFF, *OLD_BUFFER], "extra_buffer is not compatible with --disable-radix-cache"),
        (NEW, ["--speculative-algorithm", "MAGIC"], "Unknown speculative algorithm name: MAGIC"),
        (NEW, ["--mamba-radix-cache-strategy", "no_buffer"], "no_buffer do not support overlap schedule"),
    ],
)
def test_sets_that_are_refused(version: str, flags: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        started(version, *flags)


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        (OLD, []),
        (OLD, [*OLD_BUFFER, *NEXTN, *THREE]),
        (OLD, [*RADIX_OFF, *NEXTN]),
        (NEW, [*NEXTN, *THREE]),
        (NEW, [*NEW_LAZY, *NEXTN, *THREE]),
    ],
)
def test_sets_that_start(version: str, flags: list[str]) -> None:
    assert started(version, *flags).mtp is ("NEXTN" in flags)


def test_speculative_numbers_go_all_together_or_not_at_all() -> None:
    with pytest.raises(AssertionError):
        started(OLD, *RADIX_OFF, *NEXTN, "--speculative-eagle-topk", "1")
    with pytest.raises(TypeError):
        started(OLD, *RADIX_OFF, *NEXTN, "--speculative-num-steps", "2")
    found = started(OLD, *RADIX_OFF, *NEXTN)
    assert (found.steps, found.topk, found.draft_tokens) == (3, 1, 4)


@pytest.mark.parametrize(
    ("version", "flags", "words"),
    [
        (OLD, ["--mamba-radix-cache-strategy", "auto"], "unrecognized arguments: --mamba-radix-cache-strategy auto"),
        (NEW, ["--mamba-scheduler-strategy", "auto"], "unrecognized arguments: --mamba-scheduler-strategy auto"),
        (NEW, ["--cuda-graph-max-bs", "64"], "ambiguous option: --cuda-graph-max-bs could match"),
        (OLD, ["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (OLD, ["--speculative-algorithm", "MAGIC"], "argument --speculative-algorithm: invalid choice: 'MAGIC'"),
        (OLD, ["--port", "many"], "argument --port: invalid int value: 'many'"),
    ],
)
def test_flags_that_a_version_does_not_have(
    version: str, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        started(version, *flags)
    assert ended.value.code == 2
    assert f"sglang serve: error: {words}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        (OLD, ["--cuda-graph-max-bs", "64", "--tp-size", "1", "--schedule-policy", "lpm", "--enable-torch-compile"]),
        (NEW, ["--cuda-graph-max-bs-decode", "64", "--language-model-only", "--mem-fraction-static", "0.8"]),
        (OLD, ["--uvicorn-access-log-exclude-prefixes", "/metrics", "/health", "--host", "0.0.0.0"]),
    ],
)
def test_real_flags_are_taken(version: str, flags: list[str]) -> None:
    assert not lacks_memory(started(version, *flags))


@pytest.mark.parametrize(("share", "lacking"), [("0.3", True), ("0.39", True), ("0.85", False), ("0.98", True)])
def test_memory_that_does_not_suffice(share: str, lacking: bool) -> None:
    assert lacks_memory(started(OLD, "--mem-fraction-static", share)) is lacking
