"""What a rolling restart of one server costs, against the ideal: that server's share for the time it is away.

    python -m benchmarks.rolling [--gpus 4] [--restarts 4] [--tokens 400] [--startup 5]

The engine drives the simulated box at full load. Tokens are those of finished rows, so that what is given back and
generated again counts as lost. A window goes from one moment of steady load over a restart to another; the same
windows without a restart say what the servers do undisturbed, and how much that scatters.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from genmon.commands import Restart, Stop
from genmon.config.schema import (
    JobConfig,
    LimitsConfig,
    ModelConfig,
    RunConfig,
    ServersConfig,
    SimulationConfig,
    WorkersConfig,
)
from genmon.engine.engine import Engine
from genmon.engine.local import LocalHost
from genmon.job.job import Job
from genmon.state import ServerPhase


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--restarts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--startup", type=float, default=5.0)
    parser.add_argument("--window", type=float, default=120.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(arguments, Path(folder)))


async def _measure(arguments: argparse.Namespace, folder: Path) -> None:
    with (folder / "prompts.jsonl").open("w") as file:
        for number in range(200_000):
            file.write(json.dumps({"id": f"r{number}", "prompt": f"Question {number}?"}) + "\n")
    config = RunConfig(
        name="rolling",
        model=ModelConfig(path="Qwen/Qwen3.6-27B"),
        job=JobConfig(prompts=[str(folder / "prompts.jsonl")], output=str(folder / "out")),
        servers=ServersConfig(
            flags={"max-running-requests": 16, "disable-radix-cache": True}, stagger_s=0.0, base_port=37000
        ),
        workers=WorkersConfig(concurrency=16),
        limits=LimitsConfig(pause_above=1.0),
        simulation=SimulationConfig(gpus=arguments.gpus, startup_s=arguments.startup, output_tokens=arguments.tokens),
    )
    job = Job.open(config)
    engine = Engine(config, job, LocalHost(config, job.directory))
    running = asyncio.create_task(engine.run())
    while sum(server.phase is ServerPhase.READY for server in engine.state.servers) < arguments.gpus:
        await asyncio.sleep(0.2)
    await asyncio.sleep(30)
    losses = []
    try:
        for number in range(arguments.restarts):
            quiet, _ = await _window(engine, arguments.window, None)
            moved, away_s = await _window(engine, arguments.window, f"s{number % arguments.gpus}")
            ideal = quiet * (1 - away_s / arguments.window / arguments.gpus)
            losses.append(moved / ideal - 1)
            print(
                f"undisturbed {quiet:,.0f} tok/s, with a restart {moved:,.0f}, ideal {ideal:,.0f} "
                f"({away_s:.1f} s away): {losses[-1]:+.1%}",
                flush=True,
            )
    finally:
        engine.command(Stop())
        await running
    print(f"against the ideal: mean {statistics.fmean(losses):+.1%}, worst {min(losses):+.1%} (SIMULATED)")


async def _window(engine: Engine, seconds: float, restart: str | None) -> tuple[float, float]:
    """Tokens of finished rows per second, and seconds that a server was away."""
    begun, before, away_s = time.monotonic(), engine.state.job.tokens, 0.0
    if restart is not None:
        engine.command(Restart(servers=(restart,)))
        change = engine.state.changes[-1]
        while (change := engine.state.changes[-1]).ended_at is None:
            await asyncio.sleep(0.05)
        away_s = (change.ended_at or 0.0) - change.started_at
    await asyncio.sleep(seconds - (time.monotonic() - begun))
    await engine._look()
    return (engine.state.job.tokens - before) / (time.monotonic() - begun), away_s


if __name__ == "__main__":
    main()
