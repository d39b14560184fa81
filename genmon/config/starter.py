"""`genmon init`: a run file for this machine, with comments that teach."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Gpu(Protocol):
    """What a starter needs to know of a GPU."""

    @property
    def name(self) -> str:
        """Its product name."""
        ...

    @property
    def memory_total_b(self) -> int | None:
        """Memory, bytes."""
        ...

    @property
    def power_limit_w(self) -> float | None:
        """Enforced power limit, watts."""
        ...


def starter(gpus: Sequence[Gpu], folder: Path) -> str:
    """A run file for GPUs as these and the prompts in `folder`."""
    return _TEMPLATE.format(
        seen=_seen(gpus),
        gpus=str(list(range(len(gpus)))) if gpus else '"all"',
        python=_python(folder),
        requests=_requests(gpus),
        prompts=_prompts(folder),
    )


def _seen(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "no GPU was found when this was written"
    first = gpus[0]
    memory = f", {first.memory_total_b / 2**30:.0f} GiB" if first.memory_total_b else ""
    limit = f", {first.power_limit_w:.0f} W" if first.power_limit_w else ""
    return f"{len(gpus)} × {first.name}{memory}{limit}"


def _python(folder: Path) -> str:
    for candidate in (folder / ".venv/bin/python", folder / "venv/bin/python"):
        if candidate.exists():
            return str(candidate)
    return shutil.which("python3") or "python3"


def _requests(gpus: Sequence[Gpu]) -> int:
    """Requests at once: MTP reserves four states of 147 MiB for each, beside 52 GiB of weights (Qwen3.6-27B)."""
    smallest = min((gpu.memory_total_b or 0 for gpu in gpus), default=0)
    return 64 if smallest > 120 * 2**30 else 16


def _prompts(folder: Path) -> str:
    for pattern in ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst", "*.parquet"):
        if any(folder.glob(pattern)):
            return pattern
    return "prompts.jsonl"


_TEMPLATE = """\
# A genmon run file. Paths are relative to it. Next: genmon check THIS_FILE, then genmon --batch THIS_FILE.
# This machine: {seen}.

[model]
path = "Qwen/Qwen3.6-27B"           # what SGLang's --model-path takes: a folder or a hub name

[servers]
gpus = {gpus}                       # one server each; indices or UUIDs, or "all"
python = "{python}"                 # the interpreter that has SGLang
base_port = 30000

[servers.flags]                     # SGLang's own launch flags, without the dashes
reasoning-parser = "qwen3"
context-length = 8192
max-running-requests = {requests}
disable-radix-cache = true          # prompts of a data set share little; needed for MTP on SGLang 0.5.11

[servers.mtp]                       # multi-token prediction (NEXTN speculative decoding)
enabled = true
steps = 3
topk = 1
draft_tokens = 4

[job]
prompts = ["{prompts}"]             # .jsonl, .jsonl.gz, .jsonl.zst, .parquet; globs
output = "runs/first"               # the job directory: the same command goes on where it ended
# field = "question"                # when records hold neither messages, conversations nor prompt

[sampling]
max_tokens = 6144
temperature = 1.0
top_p = 0.95
top_k = 20
thinking = true

[workers]
concurrency = "auto"                # rows in flight a server: a number, or its effective cap

[limits]
retries = 2                         # new tries of an empty, unclosed or looping answer
pause_above = 0.05                  # the share of such answers that pauses the run
"""
