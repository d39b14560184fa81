"""Why a server ended: real logs, and lines that look like reasons and are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from genmon.fleet.logtail import End, diagnose, tail

CAPTURES = Path(__file__).parent / "captures"
STAMP = "[2026-12-01 03:43:01] "
ALIVE = STAMP + "Decode batch, #running-req: 1, #token: 38, token usage: 0.00, gen throughput (token/s): 1.00\n"
CHILD = STAMP + "SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
SKIPPED = (
    STAMP + "Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'\n"
    "" + STAMP + "OpenAI Responses API (/v1/responses) disabled: OpenAIServingResponses init failed "
    "(ModuleNotFoundError: No module named 'openai_harmony')\n"
)


def crash(error: str, lead: str = "Scheduler hit an exception: ") -> str:
    return (
        f'{STAMP}{lead}Traceback (most recent call last):\n  File "a.py", line 1, in run\n    go()\n{error}\n\n{CHILD}'
    )


@pytest.mark.parametrize(
    ("log", "code", "was_ready", "kind", "words", "retryable"),
    [
        ("h200-0.5.11-faults/bad_flag.log", 2, False, End.FLAG_ERROR, "unrecognized arguments: --mamba-radix", False),
        ("h200-0.5.11-faults/mtp_with_radix_cache.log", 1, False, End.CONFIG_ERROR, "not compatible with radix", False),
        ("h200-0.5.11-faults/out_of_memory.log", 137, False, End.OUT_OF_MEMORY, "--mem-fraction-static", True),
        ("0.5.11/scheduler_killed.log", 137, True, End.KILLED, "its scheduler was killed", True),
        ("0.5.23/scheduler_killed.log", 137, True, End.KILLED, "its scheduler was killed", True),
    ],
)
def test_real_logs(log: str, code: int, was_ready: bool, kind: End, words: str, retryable: bool) -> None:
    found = diagnose(tail(CAPTURES / log, 0), code, was_ready=was_ready)
    assert (found.kind, found.retryable) == (kind, retryable)
    assert words in found.sentence


@pytest.mark.parametrize(
    ("log", "code", "kind", "sentence", "retryable"),
    [
        ("launch_server.py: error: ambiguous option: --mem could match --mem-x, --mem-y\n", 2, End.FLAG_ERROR,
         "ambiguous option: --mem could match --mem-x, --mem-y", False),
        ("x.py: error: the following arguments are required: --model-path/--model\n", 2, End.FLAG_ERROR,
         "the following arguments are required: --model-path/--model", False),
        ("/usr/bin/python: No module named sglang\n", 1, End.NO_SGLANG,
         "the interpreter has no SGLang (No module named sglang)", False),
        ("/v/python: Error while finding module specification for 'sglang.launch_server' (ModuleNotFoundError: x)\n",
         1, End.NO_SGLANG, "the interpreter has no SGLang (Error while finding module specification for "
         "'sglang.launch_server' (ModuleNotFoundError: x))", False),
        ("genmon: /nowhere/python cannot be started: No such file or directory\n", 127, End.NO_SGLANG,
         "/nowhere/python cannot be started: No such file or directory", False),
        (crash("ImportError: libcudart.so.13: cannot open shared object file"), -9, End.NO_SGLANG,
         "SGLang cannot be imported: ImportError: libcudart.so.13: cannot open shared object file", False),
        (crash("OSError: nobody/nothing is not a local folder and is not a valid model identifier", ""), 1,
         End.NO_MODEL, "the model cannot be found: OSError: nobody/nothing is not a local folder and is not a valid "
         "model identifier", False),
        (crash("huggingface_hub.errors.LocalEntryNotFoundError: check your connection", ""), 1, End.NO_MODEL,
         "the model cannot be fetched: huggingface_hub.errors.LocalEntryNotFoundError: check your connection", True),
        (STAMP + "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address "
         "already in use\n", 1, End.PORT_TAKEN, "its port is taken: [Errno 98] error while attempting to bind on "
         "address ('127.0.0.1', 30000): address already in use", True),
        (crash("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."), -9, End.OUT_OF_MEMORY,
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", True),
        (crash("AttributeError: 'NoneType' object has no attribute 'shape'"), -9, End.SCHEDULER_CRASH,
         "it did not start: AttributeError: 'NoneType' object has no attribute 'shape'", True),
        (STAMP + "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9\n", 1,
         End.KILLED, "its scheduler was killed (SIGKILL: by hand, or by the system when memory ran out)", True),
        ("", 1, End.UNKNOWN, "it ended with code 1: its log is empty", True),
        ("", 143, End.CLEAN, "somebody asked it to end (SIGTERM)", True),
        ("", -9, End.KILLED, "it was killed (SIGKILL: by hand, or by the system when memory ran out)", True),
        (STAMP + "Load weight begin.\n", 139, End.NATIVE_CRASH, "it crashed with SIGSEGV: Load weight begin.", True),
    ],
)  # fmt: skip
def test_a_failed_start(log: str, code: int, kind: End, sentence: str, retryable: bool) -> None:
    found = diagnose(SKIPPED + log if log else log, code, was_ready=False)
    assert (found.kind, found.sentence, found.retryable) == (kind, sentence, retryable)


@pytest.mark.parametrize(
    ("log", "kind", "sentence"),
    [
        (crash("RuntimeError: Unsupported device: cpu"), End.SCHEDULER_CRASH,
         "its scheduler crashed: RuntimeError: Unsupported device: cpu"),
        (crash("torch.AcceleratorError: CUDA error: an illegal memory access was encountered"), End.SCHEDULER_CRASH,
         "its scheduler crashed: torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        (STAMP + "Subprocess scheduler_0 (pid=9) crashed with exit code -6. Triggering SIGQUIT for cleanup...\n",
         End.NATIVE_CRASH, "its scheduler crashed with SIGABRT"),
        (STAMP + "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n" + CHILD, End.WATCHDOG,
         "SGLang's own watchdog: Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
        (STAMP + "SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n", End.CLEAN,
         "somebody asked it to end (SIGTERM)"),
        ("genmon: the engine has not been heard of for 180 s: ending the server\n", End.KILLED,
         "the engine has not been heard of for 180 s"),
        (crash("ImportError: cannot import name 'late' from 'sglang'"), End.NO_SGLANG,
         "SGLang cannot be imported: ImportError: cannot import name 'late' from 'sglang'"),
        (crash("RuntimeError: first") + crash("EOFError", "Uncaught: "), End.SCHEDULER_CRASH,
         "its scheduler crashed: RuntimeError: first"),
    ],
)  # fmt: skip
def test_an_end_in_service(log: str, kind: End, sentence: str) -> None:
    """What served once may serve again: nothing is final."""
    found = diagnose(SKIPPED + ALIVE + log, 137, was_ready=True)
    assert (found.kind, found.sentence, found.retryable) == (kind, sentence, True)


@pytest.mark.parametrize(
    "innocent",
    [
        SKIPPED,
        crash("ValueError: a request that was refused", "Error handling request: "),
        STAMP + "Receive: obj=GenerateReqInput(text='No module named sglang; CUDA out of memory; address in use')\n",
        "nvcc: error: argument of type int\n",
        STAMP + "INFO:     127.0.0.1:1 - \"POST /v1/chat/completions HTTP/1.1\" 400 Bad Request\n",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_reason(innocent: str) -> None:
    assert diagnose(innocent + ALIVE, 137, was_ready=True).kind is End.KILLED


def test_a_compilers_error_is_no_flag_error() -> None:
    found = diagnose(
        "ninja: error: loading 'build.ninja': No such file\n" + crash("RuntimeError: Ninja"), 1, was_ready=False
    )
    assert found.sentence == "it did not start: RuntimeError: Ninja"


def test_only_this_launchs_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert tail(log, 0) == ""
    log.write_bytes(b"ValueError: of the launch before\n" + b"\xff" * 10 + b"x" * (70 << 10) + b"\nthe end")
    assert tail(log, 0).endswith("the end")
    assert len(tail(log, 0)) == 64 << 10
    assert tail(log, log.stat().st_size - 3) == "end"


def test_a_sentence_is_one_line_that_fits() -> None:
    found = diagnose(crash("RuntimeError: " + "very " * 200 + "long"), 1, was_ready=True)
    assert len(found.sentence) <= 240
    assert "\n" not in found.sentence
