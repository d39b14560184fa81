"""`genmon init`: a run file for this machine, with comments that teach."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

_GIB = 1 << 30
_WEIGHTS_GIB = 52
"""Qwen3.6-27B in BF16."""
_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".parquet")
_MOST_NAMED = 6


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


def starter(gpus: Sequence[Gpu], folder: Path, home: Path | None = None) -> str:
    """A run file for GPUs as these, the SGLang found, and the prompts in `folder`; `load` accepts it as it is.

    `home` is where the run file will lie, to which its paths are relative; `folder` itself when not given.
    """
    return _TEMPLATE.format(
        seen="\n".join(f"#   {line}" for line in _seen(gpus)),
        gpus=str(list(range(len(gpus)))) if gpus else '"all"',
        python=json.dumps(str(_python(folder)), ensure_ascii=False),
        requests=_requests(gpus),
        prompts=json.dumps(_prompts(folder, home or folder), ensure_ascii=False),
    )


def _seen(gpus: Sequence[Gpu]) -> Iterator[str]:
    if not gpus:
        yield "no GPU was found when this was written"
    for index, gpu in enumerate(gpus):
        memory = f", {gpu.memory_total_b / _GIB:.0f} GiB" if gpu.memory_total_b else ""
        limit = f", power limit {gpu.power_limit_w:.0f} W" if gpu.power_limit_w else ""
        yield f"GPU {index}: {gpu.name}{memory}{limit}"
    smallest = min((gpu.memory_total_b for gpu in gpus if gpu.memory_total_b), default=None)
    if smallest is not None and smallest < (_WEIGHTS_GIB + 16) * _GIB:
        yield f"the model below has {_WEIGHTS_GIB} GiB of weights and does not fit on one of these: name another"


def _python(folder: Path) -> Path | str:
    """The first interpreter beside which SGLang is installed; else the one that is active here."""
    named = [os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    homes = [folder / ".venv", folder / "venv", *(Path(each) for each in named if each)]
    candidates = [home / "bin" / "python" for home in homes]
    # `sglang` on PATH stands beside its interpreter; links to other folders are not followed.
    candidates += [
        Path(found).parent / "python" for each in ("sglang", "python", "python3") if (found := shutil.which(each))
    ]
    there = [each for each in candidates if os.access(each, os.X_OK)]
    return next((each for each in there if any(each.parent.parent.glob("lib/python3*/site-packages/sglang"))), "python")


def _requests(gpus: Sequence[Gpu]) -> int:
    """Requests at once, with MTP on.

    MTP sets four states of 147 MiB aside for each (Qwen3.6-27B), so that 16 fit beside the weights on 96 GB. On an
    H200 MTP paid at 32 and no longer at 64.
    """
    smallest = min((gpu.memory_total_b or 0 for gpu in gpus), default=0)
    return 32 if smallest > 120 * _GIB else 16


def _prompts(folder: Path, home: Path) -> list[str]:
    """The prompt files there, or a glob when they are many, or a placeholder."""
    names = sorted(each.name for each in folder.iterdir() if each.is_file() and each.name.endswith(_ENDINGS))
    if not names:
        return ["prompts.jsonl"]
    if len(names) > _MOST_NAMED:
        names = [f"*{ending}" for ending in _ENDINGS if any(name.endswith(ending) for name in names)]
    return [os.path.relpath(folder / name, home) for name in names]


_TEMPLATE = """\
# A genmon run file. Paths in it are relative to it.
# Next: genmon check THIS_FILE (could it run?), then genmon --batch THIS_FILE (run it; again to go on).
# This machine:
{seen}

[model]
path = "Qwen/Qwen3.6-27B"       # what SGLang's --model-path takes: a folder or a hub name

[servers]
gpus = {gpus:<24} # one server each: indices or UUIDs, or "all"
python = {python:<22} # the interpreter that has SGLang
base_port = 30000               # the first server's port; each other takes the next free one

[servers.flags]                 # SGLang's own launch flags, without the dashes
reasoning-parser = "qwen3"      # keeps thoughts apart from answers
context-length = 8192           # prompt and answer together, tokens
mem-fraction-static = 0.80      # share of the GPU's memory for weights and caches
max-running-requests = {requests:<8} # rows that a server decodes at once; it may grant fewer
disable-radix-cache = true      # prompts of a data set share little; without it MTP does not start on SGLang 0.5.11

[servers.mtp]                   # multi-token prediction: more tokens per step while few rows are in flight
enabled = true
steps = 3
topk = 1
draft_tokens = 4                # steps + 1

[job]
prompts = {prompts:<21} # .jsonl, .jsonl.gz, .jsonl.zst, .ndjson, .parquet; globs
output = "runs/first"           # the job directory: the same command goes on where it ended
# field = "text"                # when records hold no messages, conversations, prompt, turns or question
# samples = 4                   # completions a prompt

[sampling]                      # a row's own parameters win
max_tokens = 6144               # must leave room for the prompt in context-length
temperature = 1.0
top_p = 0.95
top_k = 20
thinking = true

[workers]
concurrency = "auto"            # rows in flight a server: a number, or "auto": found for each server

[limits]
retries = 2                     # new tries of an empty, unclosed or looping answer
pause_above = 0.05              # the share of such answers that pauses the run
"""
