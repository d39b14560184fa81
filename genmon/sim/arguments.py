"""Launch flags as the real versions take them: what is refused, in whose words, and what cap is granted."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from msgspec import Struct

from genmon.fleet.flags.known import ignored_flags

MAMBA_SLOTS = 80
"""State slots of the simulated GPU. With extra_buffer (5 a request) 16 requests fit, as on the 96 GB reference box."""
_SPEC_CAP = 48
_SLOTS_PER_REQUEST = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 3}
CONTEXT_LENGTH = 262_144
NEW = (0, 5, 23)
"""Of the two versions that are simulated, the newer one."""
_ALGORITHMS_OLD = ("DFLASH", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
_ALGORITHMS_NEW = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO")


class Arguments(Struct, frozen=True, kw_only=True):
    """The flags a server runs with, and what they came to."""

    model_path: str
    served_model_name: str
    port: int
    context_length: int
    context_asked: bool
    """Whether --context-length was given: only then is a larger max_tokens refused by itself."""
    reasoning_parser: str | None
    metrics: bool
    mtp: bool
    steps: int
    topk: int
    draft_tokens: int
    radix_cache: bool
    strategy: str
    cap_requested: int | None
    cap: int
    mem_fraction_static: float | None
    api_key: str | None
    quiet: tuple[str, ...]
    """Paths that the access log leaves out."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"sglang serve: error: {message}\n")


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(int(part) for part in version.split("."))


def parse(argv: list[str], version: str) -> Arguments:
    """Read the flags as SGLang `version` does.

    Exits with 2 and argparse's own words on a flag that this version does not have.

    Raises:
        ValueError, AssertionError, TypeError: a set that this version refuses, as it words it.
    """
    new = numbers(version) >= NEW
    parser = _Parser(prog="sglang serve")
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--reasoning-parser")
    parser.add_argument("--api-key")
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--max-running-requests", type=int)
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--disable-radix-cache", action="store_true")
    parser.add_argument("--uvicorn-access-log-exclude-prefixes", nargs="*", default=[])
    parser.add_argument("--speculative-algorithm", choices=None if new else _ALGORITHMS_OLD)
    for name in ("num-steps", "eagle-topk", "num-draft-tokens"):
        parser.add_argument(f"--speculative-{name}", type=int)
    strategies = ["auto", "no_buffer", "extra_buffer", *(["extra_buffer_lazy"] if new else [])]
    flag = "--mamba-radix-cache-strategy" if new else "--mamba-scheduler-strategy"
    parser.add_argument(flag, dest="strategy", choices=strategies, default="auto")
    known = ignored_flags(new=new)
    for name in sorted(known.switches):
        parser.add_argument(f"--{name}", action="store_true")
    for name in sorted(known.values):
        parser.add_argument(f"--{name}", nargs="+")
    found = parser.parse_args(argv)
    strategy = found.strategy
    if strategy == "auto":
        strategy = "extra_buffer" if new else "no_buffer"
    mtp = found.speculative_algorithm is not None
    _refuse(found, strategy, new=new)
    topk = found.speculative_eagle_topk or 1
    steps = found.speculative_num_steps or 3
    return Arguments(
        model_path=found.model_path,
        served_model_name=found.served_model_name or found.model_path,
        port=found.port,
        context_length=found.context_length or CONTEXT_LENGTH,
        context_asked=found.context_length is not None,
        reasoning_parser=found.reasoning_parser,
        metrics=found.enable_metrics,
        mtp=mtp,
        steps=steps,
        topk=topk,
        draft_tokens=steps + 1 if topk == 1 else found.speculative_num_draft_tokens or steps + 1,
        radix_cache=not found.disable_radix_cache,
        strategy=strategy,
        cap_requested=found.max_running_requests or (_SPEC_CAP if mtp else None),
        cap=_cap(found, strategy, mtp),
        mem_fraction_static=found.mem_fraction_static,
        api_key=found.api_key,
        quiet=tuple(found.uvicorn_access_log_exclude_prefixes),
    )


def lacks_memory(arguments: Arguments) -> bool:
    """Whether the weights and the caches do not fit into the share of memory that the server may use."""
    share = arguments.mem_fraction_static
    return share is not None and not 0.4 <= share <= 0.97


def _cap(found: argparse.Namespace, strategy: str, mtp: bool) -> int:
    """What the mamba state leaves of what was asked for. 0.5.11 says nothing when it grants less."""
    asked = found.max_running_requests or (_SPEC_CAP if mtp else MAMBA_SLOTS)
    if found.disable_radix_cache:
        return int(asked)  # as many slots as were asked for
    return min(int(asked), MAMBA_SLOTS // _SLOTS_PER_REQUEST[strategy])


def _refuse(found: argparse.Namespace, strategy: str, *, new: bool) -> None:
    """What `__post_init__` of the real ServerArgs raises on, in its words."""
    mtp, radix = found.speculative_algorithm is not None, not found.disable_radix_cache
    if new and mtp and found.speculative_algorithm.upper() not in _ALGORITHMS_NEW:
        raise ValueError(f"Unknown speculative algorithm name: {found.speculative_algorithm}")
    if mtp and radix and strategy == "no_buffer" and not new:
        raise ValueError(
            "Speculative decoding for Qwen3_5ForConditionalGeneration is not compatible with radix cache when using "
            "--mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
            "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
        )
    if radix and strategy == "no_buffer" and new and not found.disable_overlap_schedule:
        raise ValueError("no_buffer do not support overlap schedule.")
    # Refused up to 0.5.13 only.
    if not radix and found.strategy.startswith("extra_buffer") and not new:
        raise ValueError("mamba extra_buffer is not compatible with --disable-radix-cache.")
    if mtp and found.speculative_num_steps is None:
        # All three numbers, or none of them.
        if found.speculative_eagle_topk is not None or found.speculative_num_draft_tokens is not None:
            raise AssertionError
    elif mtp and found.speculative_eagle_topk is None:
        raise TypeError("'>' not supported between instances of 'NoneType' and 'int'")
