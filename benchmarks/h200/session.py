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
from contextlib import ExitStack, suppress
from pathlib import Path

from benchmarks.h200.run import HERE, URL, Run, busy, capture, command, keep_log, ready, recorder, say, verify
from genmon.commands import Restart
from genmon.state import RunPhase, State
from genmon.wire.client import SocketLink

_READY_S = 320.0
_ROWS = 256
"""Rows of each saturation run: four rounds of 64."""


def last(run: Run) -> State:
    """A run's last state; it has one."""
    return run.until(lambda _: True, 5)


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
    run.until(busy, 30)
    time.sleep(seconds)
    run.drain(30)


def starved(out: Path) -> None:
    """Short answers at 64 in flight, from a client that gets a twentieth of a processor."""
    core = max(os.sched_getaffinity(0))
    with against(out, "starved", "--concurrency", "64", "--max-tokens", "16", prompts="short") as run:
        run.until(busy, 30)
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
        run.drain(30)


def shared(out: Path) -> None:
    """32 in flight, and after 10 s another process on the GPU for 12 s."""
    with against(out, "second-process", "--concurrency", "32") as run:
        run.until(busy, 30)
        time.sleep(10)
        torch_python = os.environ.get("TORCH_PYTHON", "python3")
        burn = [torch_python, str(Path(__file__).with_name("burn.py")), "12"]
        command(out, "second-process-burn", burn, timeout_s=60)
        time.sleep(4)
        run.drain(30)


def hold(out: Path) -> None:
    with ExitStack() as stack:
        recorder(stack, out / "nvml.csv.gz")
        options = ("--reasoning", "save", "--max-tokens", "32")
        (HERE / "hold.toml").write_text((HERE / "mtp-off.toml").read_text().replace("pause_above = 1.0", ""))
        run = stack.enter_context(Run(out, "hold", "hold.toml", *options))
        began = time.time()
        run.until(ready, _READY_S)
        say(f"ready after {time.time() - began:.0f} s")
        run.until(lambda state: state.phase is RunPhase.PAUSED, 60)
        say("paused:", last(run).reason)
        time.sleep(2)
        capture(out / "captures", "_idle")
        for number, part in enumerate((bench, saturated, saturated, bench), 1):
            part(out, number)
        with against(out, "low-concurrency", "--concurrency", "4") as low:
            low.until(busy, 30)
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
        state = run.until(lambda state: state.job.rows_done >= 200, 120)
        capture(out / "captures", "_busy")
        leader = state.servers[0].pid or 0
        victim = child_of(leader)
        say(f"kill -9 {victim} (child of the watcher {leader}) with {last(run).job.rows_done} rows done")
        os.kill(victim, signal.SIGKILL)
        killed = time.time()
        run.until(lambda state: not ready(state), 30)
        say(f"genmon saw it after {time.time() - killed:.1f} s:", last(run).events[-1].text[:200])
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
        run.until(lambda state: state.job.rows_done >= 200, 120)
        capture(out / "captures", "_busy")
        run.end(150)
        verify(out, run)
        keep_log(out, run)


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
        say("tells:", [tell.sentence for tell in last(run).tells])
        say(asyncio.run(turn_on(run.output)))
        asked = time.time()
        run.until(lambda state: not ready(state), 60)
        run.until(lambda state: ready(state) and state.servers[0].mtp is True, _READY_S)
        say(f"ready with MTP {time.time() - asked:.0f} s after it was asked for")
        for _ in range(100):  # as long again, or until there is a verdict
            time.sleep(1)
            state = last(run)
            verdict = state.changes[-1].verdict
            if verdict is not None and any(effect.n_after >= 6 for effect in verdict.effects):
                break
        say("change:", state.changes[-1].verdict)
        say("tells:", [tell.sentence for tell in state.tells])
        run.drain(60)
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
