"""What a run left behind, said once at its end."""

from __future__ import annotations

from genmon.config.schema import RunConfig
from genmon.engine.engine import Outcome
from genmon.job.verify import verify
from genmon.state import RunPhase


def summary(config: RunConfig, outcome: Outcome) -> str:
    """A few lines: how it ended, where the rows are, and, when it is finished, what verify says of them."""
    directory = config.output
    lines = ["", f"{config.name}: {outcome.phase.value}: {outcome.sentence}"]
    if config.simulation is not None:
        lines[1] += " (SIMULATED servers and GPUs: the text means nothing)"
    if outcome.phase is RunPhase.FINISHED:
        lines.append(str(verify(directory)))
    lines.append(f"rows      {directory / 'shards'}")
    lines.append(f"about     {directory / 'sidecar'} (usage, timing, answer class, server of each row)")
    for name in ("failed.jsonl", "skipped.jsonl"):
        path = directory / name
        if path.exists() and path.stat().st_size:
            lines.append(f"{name.removesuffix('.jsonl'):<9} {path}")
    lines.append(f"export    genmon export {directory} -o rows.jsonl")
    return "\n".join(lines)
