"""Launch flags as the real versions take them: what is refused, in whose words, and what cap is granted."""

from __future__ import annotations

import argparse
from typing import NoReturn

from msgspec import Struct

MAMBA_SLOTS = 80
"""State slots of the simulated GPU. With extra_buffer (5 a request) 16 requests fit, as on the 96 GB reference box."""
_SPEC_CAP = 48
_SLOTS_PER_REQUEST = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 3}
CONTEXT_LENGTH = 262_144
_IGNORED = [
    "trust-remote-code",
    "disable-cuda-graph",
    "enable-cache-report",
    "disable-piecewise-cuda-graph",
    "disable-overlap-schedule",
    "language-model-only",
    "skip-server-warmup",
    "sleep-on-idle",
    "enable-mixed-chunk",
]
_IGNORED_WITH_VALUE = [
    "attention-backend",
    "mm-attention-backend",
    "sampling-backend",
    "grammar-backend",
    "tool-call-parser",
    "load-format",
    "device",
    "dtype",
    "quantization",
    "kv-cache-dtype",
    "max-total-tokens",
    "chunked-prefill-size",
    "page-size",
    "schedule-conservativeness",
    "watchdog-timeout",
    "log-level",
    "tp-size",
    "mamba-ssm-dtype",
    "mamba-full-memory-ratio",
    "max-mamba-cache-size",
    "speculative-draft-model-path",
    "random-seed",
    "stream-interval",
    "decode-log-interval",
    "host",
    "nccl-port",
]


class Arguments(Struct, frozen=True, kw_only=True):
    """The flags a server runs with, and what they came to."""

    model_path: str
    served_model_name: str
    port: int
    context_length: int
    reasoning_parser: str | None
    metrics: bool
    mtp: bool
    steps: int
    draft_tokens: int
    radix_cache: bool
    cap_requested: int | None
    cap: int
    api_key: str | None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage()
        self.exit(2, f"sglang serve: error: {message}\n")


def parse(argv: list[str], version: str) -> Arguments:
    """Read the flags as SGLang `version` does.

    Exits with 2 and argparse's own words on a flag that this version does not have, with 1 and the real
    ValueError or RuntimeError on a set that it refuses.
    """
    numbers = tuple(int(part) for part in version.split("."))
    parser = _Parser(prog="sglang serve", allow_abbrev=False)
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--context-length", type=int, default=CONTEXT_LENGTH)
    parser.add_argument("--reasoning-parser")
    parser.add_argument("--api-key")
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--max-running-requests", type=int)
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--disable-radix-cache", action="store_true")
    parser.add_argument("--uvicorn-access-log-exclude-prefixes", nargs="*", default=[])
    choices = ("DFLASH", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM") if numbers < (0, 5, 14) else None
    parser.add_argument("--speculative-algorithm", choices=choices)
    for name in ("num-steps", "eagle-topk", "num-draft-tokens"):
        parser.add_argument(f"--speculative-{name}", type=int)
    strategies = ["auto", "no_buffer", "extra_buffer"]
    if numbers < (0, 5, 20):
        parser.add_argument("--mamba-scheduler-strategy", dest="strategy", choices=strategies, default="auto")
        parser.add_argument("--cuda-graph-max-bs", type=int)
    if numbers >= (0, 5, 14):
        lazy = [*strategies, "extra_buffer_lazy"]
        parser.add_argument("--mamba-radix-cache-strategy", dest="strategy", choices=lazy, default="auto")
    for name in _IGNORED:
        parser.add_argument(f"--{name}", action="store_true")
    for name in _IGNORED_WITH_VALUE:
        parser.add_argument(f"--{name}")
    found = parser.parse_args(argv)
    auto = "no_buffer" if numbers < (0, 5, 14) else "extra_buffer"
    strategy = auto if found.strategy == "auto" else found.strategy
    mtp = found.speculative_algorithm is not None
    _refuse(found, strategy, mtp)
    return Arguments(
        model_path=found.model_path,
        served_model_name=found.served_model_name or found.model_path,
        port=found.port,
        context_length=found.context_length,
        reasoning_parser=found.reasoning_parser,
        metrics=found.enable_metrics,
        mtp=mtp,
        steps=found.speculative_num_steps or 3,
        draft_tokens=found.speculative_num_draft_tokens or 4,
        radix_cache=not found.disable_radix_cache,
        cap_requested=found.max_running_requests,
        cap=_cap(found, strategy, mtp),
        api_key=found.api_key,
    )


def _cap(found: argparse.Namespace, strategy: str, mtp: bool) -> int:
    """What the mamba state leaves of what was asked for. 0.5.11 says nothing when it grants less."""
    asked = found.max_running_requests or (_SPEC_CAP if mtp else MAMBA_SLOTS)
    if found.disable_radix_cache:
        return int(asked)
    return min(int(asked), MAMBA_SLOTS // _SLOTS_PER_REQUEST[strategy])


def _refuse(found: argparse.Namespace, strategy: str, mtp: bool) -> None:
    if mtp and not found.disable_radix_cache and strategy == "no_buffer":
        raise ValueError(
            "Speculative decoding for Qwen3_5ForConditionalGeneration is not compatible with radix cache when using "
            "--mamba-scheduler-strategy no_buffer.To use radix cache with speculative decoding, please use "
            "--mamba-scheduler-strategy extra_buffer and set SGLANG_ENABLE_SPEC_V2=1."
        )
    if found.disable_radix_cache and strategy.startswith("extra_buffer") and found.strategy != "auto":
        raise ValueError("mamba extra_buffer is not compatible with --disable-radix-cache.")
    if found.mem_fraction_static is not None and not 0.4 <= found.mem_fraction_static <= 0.97:
        raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")
