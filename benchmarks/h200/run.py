"""genmon as a child of a benchmark, and what is watched beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

import msgspec

from genmon.state import RunPhase, ServerPhase, State

HERE = Path.cwd()
"""Holds the run files, model/, prompts/ and runs/."""
URL = "127.0.0.1:30000"
_TAIL_B = 200_000
"""More than one line of states."""


def say(*words: object) -> None:
    """A line of the story, with the time."""
    print(time.strftime("[%H:%M:%S]"), *words, flush=True)


class Run:
    """`genmon --batch --json` as a child; its last state is read from what it writes."""

    def __init__(self, out: Path, name: str, run_file: str, *options: str) -> None:
        self.name, self.output = name, HERE / "runs" / name
        self._path = out / f"{name}.jsonl"
        command = [sys.executable, "-m", "genmon", "--batch", "--json", run_file]
        command += ["--output-file-path", str(self.output), *options]
        self._file = self._path.open("wb")
        self._errors = (out / f"{name}.err").open("wb")
        say(name, "$ genmon --batch --json", run_file, *options)
        self.process = subprocess.Popen(command, stdout=self._file, stderr=self._errors, start_new_session=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(40)
        self._file.close()
        self._errors.close()

    def last(self) -> State | None:
        """The last state that it wrote whole."""
        for line in reversed(self._path.read_bytes()[-_TAIL_B:].splitlines()):
            with suppress(ValueError, msgspec.ValidationError):
                record = json.loads(line)
                if record.pop("type") == "state":
                    return msgspec.convert(record, State)
        return None

    def until(self, condition: Callable[[State], bool], timeout_s: float) -> State:
        """Its state when `condition` holds; ends this program when it does not in time, or when genmon ended."""
        deadline = time.monotonic() + timeout_s
        while (state := self.last()) is None or not condition(state):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.story()
                raise SystemExit(f"{self.name}: what was waited for did not come (exit {self.process.poll()})")
            time.sleep(0.25)
        return state

    def drain(self, timeout_s: float) -> None:
        """Tell it to drain, and wait for its end."""
        self.process.send_signal(signal.SIGINT)
        self.end(timeout_s)

    def end(self, timeout_s: float) -> None:
        """Wait for its end. Told to drain when it takes longer."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        if self.process.poll() is None:
            say(self.name, "did not end by itself: draining")
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
        state = self.last()
        say(self.name, "exit", self.process.returncode, state.reason if state else "")

    def story(self) -> None:
        """Its last events and the end of its server's log, for a person."""
        state = self.last()
        for event in state.events[-12:] if state else ():
            say("  ", event.text[:300])
        say(self._path.with_suffix(".err").read_text(errors="replace")[-1500:])
        for log in sorted(self.output.glob("logs/*.log")):
            say(log.name, log.read_text(errors="replace")[-2500:])


def ready(state: State) -> bool:
    """Whether a server serves."""
    return any(server.phase is ServerPhase.READY for server in state.servers)


def busy(state: State) -> bool:
    """Whether rows are in flight."""
    return state.phase is RunPhase.RUNNING and state.job.rows_in_flight > 0


def recorder(stack: ExitStack, path: Path) -> None:
    """NVML at 10 Hz until the stack is left."""
    child = subprocess.Popen([sys.executable, "-m", "benchmarks.h200.recorder", str(path), "10"])

    def end() -> None:
        child.terminate()
        child.wait(5)

    stack.callback(end)


def capture(folder: Path, suffix: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.h200.capture", f"http://{URL}", str(folder), suffix],
        capture_output=True,
        text=True,
    )
    say("captured", folder.name + suffix, found.stdout.strip() or found.stderr[-300:])


def command(out: Path, name: str, words: list[str], env: dict[str, str] | None = None, timeout_s: float = 120) -> None:
    """Run to the end, its words into a file."""
    with (out / f"{name}.txt").open("w") as file:
        file.write("$ " + " ".join(words) + "\n")
        file.flush()
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, env=env, timeout=timeout_s)
    say(name, "exit", done.returncode)


def verify(out: Path, run: Run) -> None:
    command(out, f"{run.name}-verify", [sys.executable, "-m", "genmon", "verify", str(run.output)])
    say((out / f"{run.name}-verify.txt").read_text().strip()[-400:])


def keep_log(out: Path, run: Run) -> None:
    """The server's log and genmon's own books (not the rows: they are rubbish)."""
    words = ["tar", "czf", str(out / f"{run.name}-job.tgz"), "-C", str(run.output), "."]
    subprocess.run(words, check=True)
