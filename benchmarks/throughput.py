"""Rows a second and CPU a row, all durability on, beside a bare aiohttp loop against the same stub.

    python -m benchmarks.throughput [--rows 6000] [--concurrency 64 256]

The stub answers ~4 kB after 20 ms from a process of its own. CPU is this process's (all threads), from the
moment the server was ready to the end of the run, so start-up is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from benchmarks.stub_server import THOUGHT
from genmon.config.schema import (
    JobConfig,
    ModelConfig,
    RunConfig,
    SamplingConfig,
    ServersConfig,
    WorkersConfig,
)
from genmon.engine.engine import Engine
from genmon.engine.local import LocalHost
from genmon.job.job import Job
from genmon.job.verify import verify
from genmon.state import RunPhase


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[64, 256])
    arguments = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stub = subprocess.Popen([sys.executable, "-m", "benchmarks.stub_server", str(port)])
    try:
        wait_for(port)
        print(f"{'client':<16}{'C':>5}{'rows/s':>10}{'CPU ms/row':>12}")
        for concurrency in arguments.concurrency:
            for name, measure in (("bare aiohttp", bare), ("genmon", genmon)):
                rows_per_s, cpu_ms = measure(port, arguments.rows, concurrency)
                print(f"{name:<16}{concurrency:>5}{rows_per_s:>10.0f}{cpu_ms:>12.2f}", flush=True)
    finally:
        stub.terminate()
        stub.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the stub server did not start")


def prompt(number: int) -> str:
    return f"Question {number}. " + THOUGHT.format(number) * 7


def bare(port: int, rows: int, concurrency: int) -> tuple[float, float]:
    """The least that any client must do: send, receive, parse."""

    async def run() -> tuple[float, float]:
        numbers = iter(range(rows))
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def worker() -> None:
                for number in numbers:
                    body = {"model": "stub", "messages": [{"role": "user", "content": prompt(number)}]}
                    url = f"http://127.0.0.1:{port}/v1/chat/completions"
                    async with session.post(url, json=body) as response:
                        json.loads(await response.read())["choices"][0]["message"]["content"]

            cpu, wall = time.process_time(), time.monotonic()
            await asyncio.gather(*(worker() for _ in range(concurrency)))
            return rows / (time.monotonic() - wall), (time.process_time() - cpu) / rows * 1e3

    return asyncio.run(run())


def genmon(port: int, rows: int, concurrency: int) -> tuple[float, float]:
    """The whole engine: queue, client, classes, shards, sidecar, fsync; ends with a clean verify."""
    folder = Path(tempfile.mkdtemp(prefix="genmon-bench-"))
    try:
        return asyncio.run(_run_genmon(bench_config(folder, port, rows, concurrency), rows))
    finally:
        shutil.rmtree(folder)


def bench_config(folder: Path, port: int, rows: int, concurrency: int) -> RunConfig:
    """A job of `rows` prompts in `folder` on the stub at `port`."""
    with (folder / "prompts.jsonl").open("w") as file:
        for number in range(rows):
            file.write(json.dumps({"id": str(number), "prompt": prompt(number)}) + "\n")
    return RunConfig(
        name="bench",
        model=ModelConfig(path="stub"),
        servers=ServersConfig(urls=[f"http://127.0.0.1:{port}"]),
        job=JobConfig(prompts=[str(folder / "prompts.jsonl")], output=str(folder / "out")),
        sampling=SamplingConfig(max_tokens=4096, temperature=0.7),
        workers=WorkersConfig(concurrency=concurrency),
    )


async def _run_genmon(config: RunConfig, rows: int) -> tuple[float, float]:
    job = Job.open(config)
    engine = Engine(config, job, LocalHost(config, job.directory))
    running = asyncio.create_task(engine.run())
    while engine.state.phase is RunPhase.STARTING:
        await asyncio.sleep(0.005)
    cpu, wall = time.process_time(), time.monotonic()
    outcome = await running
    seconds, cpu = time.monotonic() - wall, time.process_time() - cpu
    report = verify(config.output)
    if outcome.exit_code or not report.clean:
        raise SystemExit(f"the run is not clean: {outcome.sentence}\n{report}")
    return rows / seconds, cpu / rows * 1e3


if __name__ == "__main__":
    main()
