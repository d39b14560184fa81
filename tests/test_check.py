"""`genmon check`: what it says of a run, and its exit code. Nothing of the machine it runs on is assumed."""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

from genmon.check.report import check
from genmon.config.load import load
from genmon.gpu.nvml import Nvml
from genmon.job.job import Job

GIB = 1 << 30


class DriverError(Exception):
    """What pynvml raises."""


class Driver(ModuleType):
    """A box of cards, as pynvml shows it."""

    NVML_CLOCK_SM = 1
    NVMLError = DriverError
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18

    def __init__(self, count: int, used_b: int = 0, limit_w: int = 600) -> None:
        super().__init__("pynvml")
        answers: dict[str, Callable[..., object]] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: count,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid.removeprefix("GPU-")),
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: "RTX PRO 6000",
            "nvmlDeviceGetMigMode": lambda handle: (0, 0),
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=96 * GIB, used=used_b),
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: limit_w * 1000,
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 600_000,
            "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 2430,
        }
        for name, answer in answers.items():
            setattr(self, name, answer)


def no_driver() -> Nvml:
    driver = Driver(0)

    def fail() -> None:
        error = DriverError("no library")
        error.value = Driver.NVML_ERROR_LIBRARY_NOT_FOUND  # type: ignore[attr-defined]
        raise error

    driver.nvmlInit = fail  # type: ignore[attr-defined]
    return Nvml(driver)


class Box:
    """A folder with prompts, an interpreter that has SGLang, and a run file over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver = Driver(4)
        (folder / "p.jsonl").write_text("".join(f'{{"prompt": "question {number}"}}\n' for number in range(3)))
        self.install("0.5.11")

    def install(self, version: str) -> None:
        site = self.folder / "site"
        (site / "sglang/srt").mkdir(parents=True, exist_ok=True)
        (site / "sglang/__init__.py").touch()
        names = ["model-path", "served-model-name", "enable-metrics", "uvicorn-access-log-exclude-prefixes"]
        names += ["context-length", "max-running-requests", "disable-radix-cache", "mem-fraction-static"]
        names += [f"flag-{number}" for number in range(120)]
        source = "".join(f'    parser.add_argument("--{name}")\n' for name in names)
        (site / "sglang/srt/server_args.py").write_text(f"def add(parser):\n{source}")
        (site / f"sglang-{version}.dist-info").mkdir(exist_ok=True)
        metadata = f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
        (site / f"sglang-{version}.dist-info/METADATA").write_text(metadata)
        python = self.folder / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
        python.chmod(0o755)

    def run(
        self, flags: str = "", servers: str = "", job: str = "", sampling: str = "max_tokens = 100", more: str = ""
    ) -> tuple[int, list[str]]:
        """Exit code and lines of a check."""
        path = self.folder / "run.toml"
        path.write_text(
            f'[model]\npath = "Qwen/Qwen3.6-27B"\n[servers]\npython = "./python"\nbase_port = 33700\n{servers}\n'
            f"[servers.flags]\ndisable-radix-cache = true\n{flags}\n"
            f'[job]\nprompts = ["p.jsonl"]\noutput = "out"\n{job}\n[sampling]\n{sampling}\n{more}\n'
        )
        return self.check(path)

    def check(self, path: Path) -> tuple[int, list[str]]:
        out = io.StringIO()
        code = check(load(path), out, open_nvml=lambda: Nvml(self.driver))
        return code, out.getvalue().splitlines()


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def line(lines: list[str], level: str, what: str) -> str:
    """The one line of a level about a thing."""
    found = [each for each in lines if each.split()[0] == level and each[6:].startswith(what + ":")]
    assert len(found) == 1, lines
    return found[0]


def test_a_run_that_could_run(box: Box) -> None:
    code, lines = box.run(servers="gpus = [0, 1]")
    assert code == 0, lines
    assert lines[-1] == "could run"
    assert not [each for each in lines if each.startswith(("warn", "FAIL"))], lines
    gpus = [each for each in lines if "GPUs:" in each]
    assert "0: RTX PRO 6000, 96 GiB, limit 600 W, GPU-0" in gpus[0]
    assert "2 more on this machine" in gpus[2]
    assert "0.5.11 on Python" in line(lines, "ok", "SGLang")
    assert "its own source accepts them" in line(lines, "ok", "flags")
    assert "33700 to 33701 free" in line(lines, "ok", "ports")
    assert "3 rows in 1 file" in line(lines, "ok", "prompts")
    assert "out is new" in line(lines, "ok", "output")
    assert "at most (3 rows of up to 100 tokens)" in line(lines, "ok", "disk")
    assert not (box.folder / "out").exists()


def test_no_driver_is_said_in_words(box: Box) -> None:
    box.run()
    out = io.StringIO()
    assert check(load(box.folder / "run.toml"), out, open_nvml=no_driver) == 1
    assert "no NVIDIA driver is installed" in line(out.getvalue().splitlines(), "FAIL", "GPUs")
    assert out.getvalue().endswith("could not run: mend what says FAIL\n")


def test_a_gpu_that_is_not_there(box: Box) -> None:
    code, lines = box.run(servers="gpus = [0, 7]")
    assert code == 1
    assert "servers.gpus names 7, which is not here; there is 0, 1, 2, 3" in line(lines, "FAIL", "GPUs")


def test_a_gpu_named_by_index_and_by_uuid(box: Box) -> None:
    code, lines = box.run(servers='gpus = [1, "GPU-1"]')
    assert code == 1
    assert "GPU 1 twice" in line(lines, "FAIL", "GPUs")


def test_a_card_that_somebody_is_on_and_one_below_its_default_limit(box: Box) -> None:
    box.driver = Driver(1, used_b=40 * GIB, limit_w=450)
    code, lines = box.run(flags="mem-fraction-static = 0.8")
    assert code == 0
    told = line(lines, "warn", "GPUs")
    assert "limit 450 W (default 600 W)" in told
    assert "40 GiB are in use already; 56 GiB are free and mem-fraction-static = 0.8 asks for 77 GiB" in told
    assert lines[-1] == "could run; look at 1 warn"


def test_servers_on_the_cpu_need_no_driver(box: Box) -> None:
    box.run(servers='gpus = ["cpu", "cpu"]')
    out = io.StringIO()
    assert check(load(box.folder / "run.toml"), out, open_nvml=no_driver) == 0
    assert "2 on the CPU" in out.getvalue()


def test_no_sglang(box: Box) -> None:
    (box.folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    code, lines = box.run()
    assert code == 1
    assert "has no SGLang installed" in line(lines, "FAIL", "SGLang")


def test_a_flag_that_this_version_does_not_have(box: Box) -> None:
    code, lines = box.run(flags="max-running-request = 3")
    assert code == 1
    told = line(lines, "FAIL", "flags")
    assert "SGLang 0.5.11 has no --max-running-request; did you mean max-running-requests?" in told


def test_a_renamed_flag_is_told_once_with_its_new_name(box: Box) -> None:
    code, lines = box.run(flags='mamba-radix-cache-strategy = "auto"')
    assert code == 1
    assert "before 0.5.14 it is --mamba-scheduler-strategy" in line(lines, "FAIL", "flags")


def test_flags_that_do_not_start_together(box: Box) -> None:
    code, lines = box.run(flags='mamba-scheduler-strategy = "extra_buffer"')
    assert code == 1
    assert any("exclude each other" in each for each in lines)


@pytest.mark.parametrize(("fraction", "level"), [("1.2", "FAIL"), ("'much'", "FAIL"), ("0.97", "warn")])
def test_a_memory_fraction_out_of_reason(box: Box, fraction: str, level: str) -> None:
    code, lines = box.run(flags=f"mem-fraction-static = {fraction}")
    assert code == (level == "FAIL")
    assert "mem-fraction-static" in line(lines, level, "flags")


def test_a_port_that_is_taken(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if port > 65000:
            pytest.skip("the port that was given is out of the range of base_port")
        path = box.folder / "run.toml"
        box.run()
        path.write_text(path.read_text().replace("33700", str(port)))
        code, lines = box.check(path)
    assert code == 0
    told = line(lines, "warn", "ports")
    assert str(port) in told  # the next ones may be taken too, by tests beside this one
    assert "taken" in told


def test_a_model_folder_without_a_model(box: Box) -> None:
    (box.folder / "weights").mkdir()
    for path, words in (("weights", "has no config.json"), ("/nowhere/weights", "which is no folder")):
        box.run()
        run_file = box.folder / "run.toml"
        run_file.write_text(run_file.read_text().replace("Qwen/Qwen3.6-27B", path))
        code, lines = box.check(run_file)
        assert code == 1
        assert words in line(lines, "FAIL", "model")


def test_bad_lines_are_counted_and_the_first_is_named(box: Box) -> None:
    (box.folder / "p.jsonl").write_text('{"prompt": "a"}\nnonsense\n{"x": 1}\n{"prompt": "b"}\n')
    code, lines = box.run(job="samples = 2")
    assert code == 0
    assert "4 rows in 1 file" in line(lines, "ok", "prompts")
    assert "2 bad lines will be skipped; the first is p.jsonl line 2: not JSON" in line(lines, "warn", "prompts")


def test_prompts_that_are_none(box: Box) -> None:
    (box.folder / "p.jsonl").write_text("nonsense\n")
    code, lines = box.run()
    assert code == 1
    assert "no usable row in 1 file; the first bad one is p.jsonl line 1" in line(lines, "FAIL", "prompts")
    (box.folder / "p.jsonl").unlink()
    code, lines = box.run()
    assert code == 1
    assert "matches no file" in line(lines, "FAIL", "prompts")


def test_answers_without_end_and_thoughts_without_a_parser_are_told(box: Box) -> None:
    code, lines = box.run(sampling="thinking = true")
    assert code == 0
    told = " ".join(each for each in lines if each.startswith("warn  sampling"))
    assert "no sampling.max_tokens" in told
    assert "without servers.flags.reasoning-parser" in told
    assert "about 2,000 tokens" in line(lines, "ok", "disk")


def test_concurrency_above_the_cap_is_told(box: Box) -> None:
    _, lines = box.run(flags="max-running-requests = 16", more="[workers]\nconcurrency = 64")
    assert "never more than 16 are sent" in line(lines, "warn", "sampling")


def test_more_output_than_the_disk_could_hold(box: Box) -> None:
    code, lines = box.run(sampling="max_tokens = 1000000000000")
    assert code == 1
    assert "GB free" in line(lines, "FAIL", "disk")


def test_a_job_that_is_there_goes_on_or_is_said_not_to(box: Box) -> None:
    box.run()
    job = Job.open(load(box.folder / "run.toml"))
    code, lines = box.run()
    assert code == 1
    assert "another genmon has" in line(lines, "FAIL", "output")
    job.close()

    code, lines = box.run()
    assert code == 0
    assert "goes on where it ended" in line(lines, "ok", "output")
    Job.open(load(box.folder / "run.toml")).close()  # the check has left no lock behind

    code, lines = box.run(job="samples = 3")
    assert code == 1
    assert "job.samples was 1 when the job began and is 3" in line(lines, "FAIL", "output")

    code, lines = box.run(more="[simulation]")
    assert code == 1
    assert "the job there is real and this run is SIMULATED" in line(lines, "FAIL", "output")

    with (box.folder / "p.jsonl").open("a") as file:
        file.write('{"prompt": "one more"}\n')
    code, lines = box.run()
    assert code == 1
    assert "the prompt files are not those the job began with" in line(lines, "FAIL", "output")


def test_an_output_that_cannot_be(box: Box) -> None:
    (box.folder / "out").write_text("a file")
    code, lines = box.run()
    assert code == 1
    assert "is a file: job.output names a directory" in line(lines, "FAIL", "output")


def test_other_files_in_the_output_are_told(box: Box) -> None:
    (box.folder / "out").mkdir()
    (box.folder / "out/notes.txt").touch()
    code, lines = box.run()
    assert code == 0
    assert "holds files that are no job's" in line(lines, "warn", "output")


def test_a_simulated_run_says_so_and_asks_nothing_of_the_machine(box: Box) -> None:
    (box.folder / "python").unlink()
    box.driver = Driver(0)
    code, lines = box.run(more="[simulation]\ngpus = 3")
    assert code == 0, lines
    assert "SIMULATED, 3 ×" in line(lines, "ok", "GPUs")
    assert "SIMULATED" in line(lines, "ok", "SGLang")
    assert lines[-1] == "could run (SIMULATED)"


def test_an_api_key_that_is_not_set(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOX_KEY", raising=False)
    code, lines = box.run(servers='api_key_env = "BOX_KEY"')
    assert code == 1
    assert "the environment variable BOX_KEY (servers.api_key_env) is not set" in line(lines, "FAIL", "API key")
    monkeypatch.setenv("BOX_KEY", "x")
    assert box.run(servers='api_key_env = "BOX_KEY"')[0] == 0


class _Sglang(BaseHTTPRequestHandler):
    replies: ClassVar[dict[str, object]] = {
        "/model_info": {"model_path": "m"},
        "/server_info": {"version": "0.5.11", "internal_states": [{"effective_max_running_requests_per_dp": 16}]},
    }

    def do_GET(self) -> None:
        body = json.dumps(self.replies.get(self.path, {})).encode()
        self.send_response(200 if self.path in self.replies else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """A server that answers as SGLang does."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Sglang) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_servers_that_already_run(box: Box, server: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
    path = tmp_path / "urls.toml"
    path.write_text(
        f'[model]\npath = "m"\n[servers]\nurls = ["{server}", "{dead}"]\n[job]\nprompts = ["p.jsonl"]\n'
        'output = "out"\n[sampling]\nmax_tokens = 10\n'
    )
    code, lines = box.check(path)
    assert code == 1
    assert f"{server}: SGLang 0.5.11, MTP off, cap 16" in line(lines, "ok", "server")
    assert f"{dead} cannot be reached" in line(lines, "FAIL", "server")
    path.write_text(path.read_text().replace(f', "{dead}"', ""))
    assert box.check(path)[0] == 0


def test_something_else_that_answers(box: Box, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Sglang, "replies", {})
    path = tmp_path / "urls.toml"
    path.write_text(
        f'[model]\npath = "m"\n[servers]\nurls = ["{server}"]\n[job]\nprompts = ["p.jsonl"]\noutput = "out"\n'
    )
    code, lines = box.check(path)
    assert code == 1
    assert "answers, but not as SGLang does" in line(lines, "FAIL", "server")
