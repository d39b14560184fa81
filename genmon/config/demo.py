"""The run behind `genmon --demo`: a whole job on a simulated box of four GPUs."""

from __future__ import annotations

import json
from pathlib import Path

from genmon.config.schema import (
    JobConfig,
    ModelConfig,
    MtpConfig,
    RunConfig,
    SamplingConfig,
    ServersConfig,
    SimulationConfig,
)

_PROMPTS = 10_000
_ROWS = 400
_ASKS = (
    "A shop sells {a} notebooks a day for {b} days. How many is that?",
    "Explain to a child why {a} is {parity}.",
    "Write a function that returns the {a}th number divisible by {b}.",
    "A train leaves at {b}:{a:02d}. Name three things that could delay it.",
    "Give the prime factors of {a} and say how you found them.",
    "Plan a walk of {b} km with {a} minutes of rest.",
)


def demo_config(output: Path) -> RunConfig:
    """The demo as a run; `write_demo_prompts` makes its input. `job.limit` says how many rows it takes."""
    return RunConfig(
        name="demo",
        model=ModelConfig(path="Qwen/Qwen3.6-27B"),
        servers=ServersConfig(
            base_port=30000,
            stagger_s=0.5,
            flags={"reasoning-parser": "qwen3", "max-running-requests": 32, "disable-radix-cache": True},
            mtp=MtpConfig(enabled=True),
        ),
        job=JobConfig(prompts=[str(output / "prompts.jsonl")], output=str(output), shard_size=100, limit=_ROWS),
        sampling=SamplingConfig(max_tokens=4096, temperature=1.0, top_p=0.95, seed=1, thinking=True),
        simulation=SimulationConfig(),
    )


def write_demo_prompts(path: Path) -> None:
    """10,000 small prompts, every twentieth of two turns; always the same, so that a demo can be gone on with."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("w") as file:
        for number in range(_PROMPTS):
            file.write(json.dumps(_prompt(number)) + "\n")
    temporary.replace(path)


def _prompt(number: int) -> dict[str, object]:
    a, b = number % 97 + 3, number % 11 + 2
    ask = _ASKS[number % len(_ASKS)].format(a=a, b=b, parity="even" if a % 2 == 0 else "odd")
    messages = [{"role": "user", "content": f"{ask} (No. {number})"}]
    if number % 20 == 19:
        messages += [
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "Now say it in one sentence."},
        ]
    return {"id": f"demo-{number:05d}", "messages": messages}
