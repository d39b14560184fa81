"""What is done on the machine with the GPU, one part at a time; `go.sh` calls it.

    python -m benchmarks.h200.session OUT PART...

hold      genmon launches a server (MTP off) for a job whose thoughts never close: it must pause, and then keeps the
          server up for: saturation (beside SGLang's own bench client), and the states a rule must tell apart
          (low concurrency, a starved client, a second process on the GPU)
off       a job of real prompts, MTP off; its server is killed with -9 in the middle
on        the same job with MTP on, undisturbed
toggle    a job at 16 in flight that begins with MTP off; it is turned on while the job runs

Every part leaves OUT/PART/: genmon's own state each second (`*.jsonl`), NVML at 10 Hz, captures, verify's report.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from genmon.commands import Restart
from genmon.wire.client import SocketLink

HERE = Path.cwd()
"""Holds the run files, model/, prompts/ and runs/."""
URL = "127.0.0.1:30000"
_READY_S = 320.0
_ROWS = 256
"""Rows of each saturation run: four rounds of 64."""


def say(*words: object) -> None:
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(40)
        self._file.close()
        self._errors.close()

    def last(self) -> dict:  # type: ignore[type-arg]
        """The last whole line it wrote."""
        lines = self._path.read_bytes()[-200_000:].splitlines()
        for line in reversed(lines):
            with suppress(ValueError):
                return dict(json.loads(line))
        return {}

    def until(self, condition: Callable[[dict], bool], timeout_s: float) -> dict:  # type: ignore[type-arg]
        """Its state when `condition` holds; ends this program when it does not in time, or when genmon ended."""
        deadline = time.monotonic() + timeout_s
        while not (state := self.last()) or not condition(state):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.story()
                raise SystemExit(f"{self.name}: what was waited for did not come (exit {self.process.poll()})")
            time.sleep(0.25)
        return state

    def end(self, timeout_s: float) -> int:
        """Wait for its end; its exit code. Told to drain when it takes longer."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        if self.process.poll() is None:
            say(self.name, "did not end by itself: draining")
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
        say(self.name, "exit", self.process.returncode, self.last().get("sentence", ""))
        return self.process.returncode or 0

    def story(self) -> None:
        """Its last events and the end of its server's log, for a person."""
        state = self.last()
        for event in state.get("events", ())[-12:]:
            say("  ", event["text"][:300])
        say("".join((self._path.with_suffix(".err")).read_text(errors="replace")[-1500:]))
        for log in sorted(self.output.glob("logs/*.log")):
            say(log.name, log.read_text(errors="replace")[-2500:])


def ready(state: dict) -> bool:  # type: ignore[type-arg]
    return any(server["phase"] == "ready" for server in state.get("servers", ()))


def phase(name: str) -> Callable[[dict], bool]:  # type: ignore[type-arg]
    return lambda state: state.get("phase") == name


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


def bench(out: Path, number: int) -> None:
    """SGLang's own bench client at 64: the same rows, sampling and token limit as genmon's."""
    stub = HERE / "stub" / "datasets"  # the client imports it for benchmarks that are not asked for
    stub.mkdir(parents=True, exist_ok=True)
    (stub / "__init__.py").write_text("load_dataset = None\n")
    site = os.environ["SGLANG_SITE"] + os.pathsep + str(stub.parent)
    body = {"temperature": 1.0, "chat_template_kwargs": {"enable_thinking": False}}
    words = [os.environ.get("SGLANG_PYTHON", "python3"), "-m", "sglang.bench_serving", "--backend", "sglang-oai-chat"]
    words += ["--base-url", f"http://{URL}", "--model", str(HERE / "model")]
    words += ["--served-model-name", "Qwen3.6-27B-dummy"]
    words += ["--dataset-name", "openai", "--dataset-path", str(HERE / "prompts" / "saturation.jsonl")]
    words += ["--num-prompts", str(_ROWS), "--max-concurrency", "64", "--disable-stream", "--disable-tqdm"]
    words += ["--extra-request-body", json.dumps(body), "--output-file", str(out / f"bench-{number}.jsonl")]
    env = os.environ | {"PYTHONPATH": site, "HF_HUB_OFFLINE": "1", "SGLANG_IS_FLASHINFER_AVAILABLE": "false"}
    command(out, f"bench-{number}", words, env)
    say((out / f"bench-{number}.txt").read_text()[-2200:] if number == 1 else "")


def against(out: Path, name: str, *options: str, prompts: str = "saturation") -> Run:
    """genmon against the server that is up."""
    prompts_path = str(HERE / "prompts" / f"{prompts}.jsonl")
    return Run(out, name, "mtp-off.toml", "--server-address", URL, "--input-file-path", prompts_path, *options)


def saturated(out: Path, number: int) -> None:
    with against(out, f"saturation-{number}", "--concurrency", "64", "--num-samples", str(_ROWS)) as run:
        run.end(100)
        rows = [json.loads(line) for path in run.output.glob("sidecar/*.jsonl") for line in path.open()]
    tokens = sum(row["completion_tokens"] for row in rows)
    begin = min(row["started_at"] for row in rows)
    took_s = max(row["started_at"] + row["latency_s"] for row in rows) - begin
    say(f"saturation-{number}: {tokens} tokens in {took_s:.2f} s = {tokens / took_s:.1f} tok/s")
    figures = {"rows": len(rows), "tokens": tokens, "took_s": took_s, "tokens_per_s": tokens / took_s}
    (out / f"saturation-{number}-figures.json").write_text(json.dumps(figures))


def for_a_while(run: Run, seconds: float) -> None:
    """Let a run go for so long after its first answer, then drain it."""
    run.until(lambda state: state.get("phase") == "running" and state["job"]["rows_in_flight"] > 0, 30)
    time.sleep(seconds)
    run.process.send_signal(signal.SIGINT)
    run.end(30)


def starved(out: Path) -> None:
    """Short answers at 64 in flight, from a client that gets a twentieth of a processor."""
    core = max(os.sched_getaffinity(0))
    with against(out, "starved", "--concurrency", "64", "--max-tokens", "16", prompts="short") as run:
        run.until(lambda state: state.get("phase") == "running" and state["job"]["rows_in_flight"] > 0, 30)
        os.sched_setaffinity(run.process.pid, {core})
        burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(20)]
        try:
            for each in burners:
                os.sched_setaffinity(each.pid, {core})
            time.sleep(15)
        finally:
            for each in burners:
                each.kill()
                each.wait()
        run.process.send_signal(signal.SIGINT)
        run.end(30)


def shared(out: Path) -> None:
    """32 in flight, and after 10 s another process on the GPU for 12 s."""
    with against(out, "second-process", "--concurrency", "32") as run:
        run.until(lambda state: state.get("phase") == "running" and state["job"]["rows_in_flight"] > 0, 30)
        time.sleep(10)
        torch_python = os.environ.get("TORCH_PYTHON", "python3")
        burn = [torch_python, str(Path(__file__).with_name("burn.py")), "12"]
        command(out, "second-process-burn", burn, timeout_s=60)
        time.sleep(4)
        run.process.send_signal(signal.SIGINT)
        run.end(30)


def hold(out: Path) -> None:
    with ExitStack() as stack:
        recorder(stack, out / "nvml.csv.gz")
        options = ("--reasoning", "save", "--max-tokens", "32")
        (HERE / "hold.toml").write_text((HERE / "mtp-off.toml").read_text().replace("pause_above = 1.0", ""))
        run = stack.enter_context(Run(out, "hold", "hold.toml", *options))
        began = time.time()
        run.until(ready, _READY_S)
        say(f"ready after {time.time() - began:.0f} s")
        run.until(phase("paused"), 60)
        say("paused:", run.last().get("reason"))
        time.sleep(2)
        capture(out / "captures", "_idle")
        for number, part in enumerate((bench, saturated, saturated, bench), 1):
            part(out, number)
        with against(out, "low-concurrency", "--concurrency", "4") as low:
            low.until(lambda state: state.get("phase") == "running" and state["job"]["rows_in_flight"] > 0, 30)
            time.sleep(8)
            capture(out / "captures", "_busy")
            for_a_while(low, 10)
        starved(out)
        shared(out)
        run.process.send_signal(signal.SIGTERM)
        run.end(60)
        keep_log(out, run)


def off(out: Path) -> None:
    with ExitStack() as stack:
        recorder(stack, out / "nvml.csv.gz")
        run = stack.enter_context(Run(out, "mtp-off", "mtp-off.toml"))
        began = time.time()
        run.until(ready, _READY_S)
        say(f"ready after {time.time() - began:.0f} s")
        state = run.until(lambda state: state["job"]["rows_done"] >= 200, 120)
        capture(out / "captures", "_busy")
        leader = state["servers"][0]["pid"]
        victim = child_of(leader)
        say(f"kill -9 {victim} (child of the watcher {leader}) with {run.last()['job']['rows_done']} rows done")
        os.kill(victim, signal.SIGKILL)
        killed = time.time()
        run.until(lambda state: not ready(state), 30)
        say(f"genmon saw it after {time.time() - killed:.1f} s:", run.last()["events"][-1]["text"][:200])
        run.until(ready, _READY_S)
        say(f"ready again {time.time() - killed:.0f} s after the kill")
        run.end(150)
        verify(out, run)
        keep_log(out, run)


def child_of(parent: int) -> int:
    """The first child of a process."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == parent:
                return int(entry.parent.name)
    raise SystemExit(f"process {parent} has no child")


def on(out: Path) -> None:
    with ExitStack() as stack:
        recorder(stack, out / "nvml.csv.gz")
        run = stack.enter_context(Run(out, "mtp-on", "mtp-on.toml"))
        began = time.time()
        run.until(ready, _READY_S)
        say(f"ready after {time.time() - began:.0f} s")
        run.until(lambda state: state["job"]["rows_done"] >= 200, 120)
        capture(out / "captures", "_busy")
        run.end(150)
        verify(out, run)
        keep_log(out, run)


def keep_log(out: Path, run: Run) -> None:
    """The server's log and genmon's own books (not the rows: they are rubbish)."""
    words = ["tar", "czf", str(out / f"{run.name}-job.tgz"), "-C", str(run.output), "."]
    subprocess.run(words, check=True)


def toggle(out: Path) -> None:
    """A job that begins without MTP; MTP is turned on over the wire while it runs, as a dashboard does."""
    with ExitStack() as stack:
        recorder(stack, out / "nvml.csv.gz")
        text = (HERE / "mtp-on.toml").read_text().replace("enabled = true", "enabled = false")
        for name in ("max-running-requests", "cuda-graph-max-bs"):  # smaller ones start sooner
            text = text.replace(f"{name} = 64", f"{name} = 16")
        (HERE / "toggle.toml").write_text(text)
        prompts = str(HERE / "prompts" / "saturation.jsonl")
        options = ("--input-file-path", prompts, "--concurrency", "16")
        run = stack.enter_context(Run(out, "toggle", "toggle.toml", *options))
        began = time.time()
        run.until(ready, _READY_S)
        say(f"ready after {time.time() - began:.0f} s")
        time.sleep(92)  # 20 s of warm-up and the six slices of 10 s that a verdict needs
        say("tells:", [tell["sentence"] for tell in run.last().get("tells", ())])
        say(asyncio.run(turn_on(run.output)))
        asked = time.time()
        run.until(lambda state: not ready(state), 60)
        run.until(lambda state: ready(state) and bool(state["servers"][0]["mtp"]), _READY_S)
        say(f"ready with MTP {time.time() - asked:.0f} s after it was asked for")
        for _ in range(100):  # as long again, or until there is a verdict
            time.sleep(1)
            state = run.last()
            verdict = state["changes"][-1].get("verdict") or {}
            if any(effect["n_after"] >= 6 for effect in verdict.get("effects", ())):
                break
        say("change:", json.dumps(state.get("changes"))[:3000])
        say("tells:", [tell["sentence"] for tell in state.get("tells", ())])
        run.process.send_signal(signal.SIGINT)
        run.end(60)
        verify(out, run)
        keep_log(out, run)


async def turn_on(directory: Path) -> str:
    """Plan and give the command; what genmon says to both."""
    async with SocketLink(directory) as link, asyncio.timeout(30):
        while link.state is None:
            link.arrived.clear()
            await link.arrived.wait()
        command = Restart(servers=("s0",), mtp=True)
        plan = await link.plan(command)
        return f"{plan.sentence} {plan.servers} -> {await link.do(command)}"


PARTS = {"hold": hold, "off": off, "on": on, "toggle": toggle}


def main() -> None:
    for name in sys.argv[2:]:
        say("part", name)
        out = Path(sys.argv[1]) / name
        out.mkdir(parents=True, exist_ok=True)
        PARTS[name](out)


if __name__ == "__main__":
    main()
