"""What the dashboard costs by itself: 8 GPUs at 1 Hz in a pseudo-terminal of 160×45.

    python -m benchmarks.dashboard [--seconds 60] [--soak-hours 30]

An engine of the benchmark's own serves changing states over a real socket; the dashboard is a child process in a
pseudo-terminal. Measured: its CPU as a share of one core after start-up, the bytes a second that reach the terminal
and the socket, milliseconds from a key to changed bytes on the terminal, and its resident memory over so many
simulated hours, in which states come as fast as they are drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import pty
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import psutil
from msgspec.structs import replace

from genmon.commands import Command, Plan
from genmon.state import Event, State
from genmon.wire.messages import FrameWriter, Snapshot
from genmon.wire.server import WireServer
from tests.ui_link import gpu, healthy, server

_NOISE = random.Random(1)


def moment(at: float) -> State:
    """Eight GPUs whose every figure moves a little."""
    noise = _NOISE
    servers = tuple(
        server(
            n,
            at,
            tokens_per_s=noise.gauss(1204, 25),
            acceptance_length=noise.gauss(2.8, 0.05),
            kv_usage=noise.random(),
            in_flight=noise.randrange(12, 17),
            decode_tokens=int(at * 1200),
        )
        for n in range(8)
    )
    gpus = tuple(
        gpu(n, at, power_w=noise.gauss(530, 8), energy_j=at * 530, temperature_c=noise.randrange(66, 70))
        for n in range(8)
    )
    state = healthy(8, at, servers=servers, gpus=gpus)
    job = replace(state.job, rows_done=int(at) % 902_087, tokens=int(at * 9600), tokens_per_s=noise.gauss(9600, 90))
    events = tuple(Event(at - n, f"s{n % 8}: something happened {int(at) - n}") for n in range(200, 0, -7))
    return replace(state, job=job, events=events)


class Engine:
    """Shows a new state whenever it is told to."""

    def __init__(self) -> None:
        self.state = moment(time.time())

    def plan(self, command: Command) -> Plan:
        return Plan(sentence="nothing")

    def command(self, command: Command, by: str = "") -> str:
        return "nothing"


class Terminal:
    """The dashboard in a pseudo-terminal whose output is counted."""

    def __init__(self, directory: Path) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 160, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        command = [sys.executable, "-m", "genmon", "attach", str(directory)]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.bytes, self.last_at = 0, 0.0
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        while True:
            try:
                got = len(os.read(self.master, 1 << 16))
            except OSError:
                return
            self.bytes, self.last_at = self.bytes + got, time.monotonic()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--soak-hours", type=float, default=30.0)
    arguments = parser.parse_args()
    writer = FrameWriter(compress=True)
    frames = [len(writer.pack(Snapshot(moment(1e9 + second)))) for second in range(60)]
    print(f"socket: {statistics.mean(frames[1:]):,.0f} bytes a state, at one state a second")
    with tempfile.TemporaryDirectory(prefix="genmon-bench-") as folder:
        engine = Engine()
        wire = WireServer(engine, Path(folder))
        await wire.open()
        terminal = Terminal(Path(folder))
        process = psutil.Process(terminal.process.pid)
        try:
            for _ in range(10):
                engine.state = moment(time.time())
                await asyncio.sleep(1.0)
            await steady(engine, terminal, process, arguments.seconds)
            await keys(engine, terminal)
            await soak(engine, process, arguments.soak_hours)
        finally:
            terminal.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(terminal.process.wait)
            await wire.close()


async def steady(engine: Engine, terminal: Terminal, process: psutil.Process, seconds: int) -> None:
    cpu, sent, began = sum(process.cpu_times()[:2]), terminal.bytes, time.monotonic()
    for _ in range(seconds):
        engine.state = moment(time.time())
        await asyncio.sleep(1.0)
    took = time.monotonic() - began
    share = (sum(process.cpu_times()[:2]) - cpu) / took
    print(f"dashboard: {share:.1%} of a core, {(terminal.bytes - sent) / took / 1e3:.1f} kB/s to the terminal")


async def keys(engine: Engine, terminal: Terminal) -> None:
    """The cursor goes up and down: each press changes two lines."""
    took_ms = []
    for number in range(200):
        if number % 10 == 0:
            engine.state = moment(time.time())
        await asyncio.sleep(0.09 + 0.02 * _NOISE.random())
        before, pressed = terminal.bytes, time.monotonic()
        os.write(terminal.master, b"j" if number % 2 else b"k" if number else b"j")
        while terminal.bytes == before and time.monotonic() - pressed < 1.0:
            await asyncio.sleep(0.001)
        took_ms.append((terminal.last_at - pressed) * 1e3)
    took_ms.sort()
    middle_ms, p99_ms = statistics.median(took_ms), took_ms[197]
    print(f"key to changed screen: median {middle_ms:.0f} ms, p99 {p99_ms:.0f} ms, n {len(took_ms)}")


async def soak(engine: Engine, process: psutil.Process, hours: float) -> None:
    """States of so many hours, ten a second, each an interval later; memory at the first third and at the end."""
    states, at = 3000, time.time()
    sizes = []
    for number in range(states):
        at += hours * 3600 / states
        engine.state = moment(at)
        if number % 100 == 99:
            sizes.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(0.05)
    third = len(sizes) // 3
    print(
        f"memory: {statistics.mean(sizes[third : third + 3]):.1f} MB after {hours / 3:.0f} simulated hours, "
        f"{statistics.mean(sizes[-3:]):.1f} MB after {hours:.0f}"
    )


if __name__ == "__main__":
    asyncio.run(main())
