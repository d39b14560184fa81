"""What a dashboard costs the engine: rows a second with none and with two attached, in turns.

    python -m benchmarks.attached [--rows 6000] [--concurrency 256] [--turns 4] [--views 2]

The engine drives the stub server of benchmarks/throughput.py with 256 rows in flight; a view is a process that
receives every state over the socket, as the dashboard does. Beside it: seconds from a command to its answer, asked
ten times a second by one more view while the engine works.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.throughput import bench_config, wait_for
from genmon.commands import SetConcurrency
from genmon.config.schema import RunConfig
from genmon.engine.engine import Engine
from genmon.engine.local import LocalHost
from genmon.job.job import Job
from genmon.state import RunPhase
from genmon.wire.client import SocketLink
from genmon.wire.server import WireServer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--views", type=int, default=2)
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--press", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.watch:
        asyncio.run(_watch(arguments.watch))
        return
    if arguments.press:
        asyncio.run(_press(arguments.press, arguments.concurrency))
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stub = subprocess.Popen([sys.executable, "-m", "benchmarks.stub_server", str(port)])
    try:
        wait_for(port)
        rates: dict[int, list[tuple[float, float]]] = {0: [], arguments.views: []}
        for turn in range(arguments.turns):
            for views in (0, arguments.views) if turn % 2 else (arguments.views, 0):
                measured = run(port, arguments.rows, arguments.concurrency, views=views)
                rates[views].append(measured)
                print(f"{views} views: {measured[0]:.0f} rows/s, {measured[1]:.2f} ms CPU a row", flush=True)
        for at, name in ((0, "rows/s"), (1, "CPU ms a row")):
            without, with_ = (statistics.median(each[at] for each in rates[views]) for views in (0, arguments.views))
            print(
                f"{name}: {without:.4g} without, {with_:.4g} with {arguments.views} views: {with_ / without - 1:+.1%}"
            )
        run(port, arguments.rows, arguments.concurrency, views=0, press=True)
    finally:
        stub.terminate()
        stub.wait()


def run(port: int, rows: int, concurrency: int, *, views: int, press: bool = False) -> tuple[float, float]:
    """One job; rows/s and CPU ms a row of the engine, from the first ready server on."""
    folder = Path(tempfile.mkdtemp(prefix="genmon-bench-"))
    try:
        return asyncio.run(_run(bench_config(folder, port, rows, concurrency), rows, views, press))
    finally:
        shutil.rmtree(folder)


async def _run(config: RunConfig, rows: int, views: int, press: bool) -> tuple[float, float]:
    job = Job.open(config)
    engine = Engine(config, job, LocalHost(config, job.directory))
    wire = WireServer(engine, job.directory)
    await wire.open()
    command = [sys.executable, "-m", "benchmarks.attached", "--concurrency", str(config.workers.concurrency)]
    kinds = ["--watch"] * views + ["--press"] * press
    children = [await asyncio.create_subprocess_exec(*command, kind, str(job.directory)) for kind in kinds]
    await asyncio.sleep(2.0)  # the views' own start is not what is measured
    running = asyncio.create_task(engine.run())
    while engine.state.phase is RunPhase.STARTING:
        await asyncio.sleep(0.005)
    cpu, wall = time.process_time(), time.monotonic()
    await running
    seconds, cpu = time.monotonic() - wall, time.process_time() - cpu
    await wire.close()
    for child in children:
        await child.wait()
    return rows / seconds, cpu / rows * 1e3


async def _watch(directory: Path) -> None:
    async with SocketLink(directory) as link:
        while not link.ended:
            link.arrived.clear()
            await link.arrived.wait()


async def _press(directory: Path, concurrency: int) -> None:
    """Ask for the concurrency that is there already, and wait until a state after the answer is here."""
    took_s: list[float] = []
    async with SocketLink(directory) as link:
        while not link.ended:
            at = time.monotonic()
            link.arrived.clear()
            if not link.connected:
                break
            await link.do(SetConcurrency(concurrency))
            await link.arrived.wait()
            took_s.append(time.monotonic() - at)
            await asyncio.sleep(0.1)
    took_s.sort()
    median_ms, p99_ms = statistics.median(took_s) * 1e3, took_s[int(len(took_s) * 0.99)] * 1e3
    print(f"command to changed state: median {median_ms:.1f} ms, p99 {p99_ms:.1f} ms, n {len(took_s)}")


if __name__ == "__main__":
    main()
