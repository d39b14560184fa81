"""How a simulated server starts, and how it fails: the lines that the real one logs, and its return codes."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import NoReturn

from genmon.config.schema import SimulationConfig
from genmon.sim.arguments import NEW, Arguments, numbers
from genmon.sim.log import log

WARM_UP_SHARE = 0.2
"""Share of the start-up in which the port is open and the server not ready."""
READY = "The server is fired up and ready to roll!"
_WEIGHTS_SHARE = 0.5


def load(arguments: Arguments, simulation: SimulationConfig) -> None:
    """Load the weights; waits. The port is closed and SIGTERM ends the process with -15, as in the real one."""
    new = numbers(simulation.version) >= NEW
    key = f", api_key={arguments.api_key!r}" if arguments.api_key else ""  # the real one tells it too
    settings = f"model_path='{arguments.model_path}', port={arguments.port}{key}"
    log(f"server_args={{{settings}}}" if new else f"server_args=ServerArgs({settings})")
    if arguments.mtp and arguments.cap_requested == arguments.cap == 48:
        log(
            "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly "
            "setting --max-running-requests."
        )
    if arguments.mtp and not new:
        log("Spec v2 is enabled by default for eagle/eagle3/standalone speculative decoding.")
    log("Init parallel begin." if new else "Init torch distributed begin.")
    log(
        "Init parallel ends. elapsed=0.23 s"
        if new
        else "Init torch distributed ends. elapsed=0.23 s, mem usage=0.09 GB"
    )
    log("Load weight begin. avail mem=139.13 GB")
    took_s = simulation.startup_s * (1 - WARM_UP_SHARE) * _WEIGHTS_SHARE
    time.sleep(took_s)
    log(
        f"Load weight end. elapsed={took_s:.2f} s, type=Qwen3_5ForConditionalGeneration, avail mem=88.07 GB, "
        "mem usage=51.05 GB."
    )
    granted, asked = arguments.cap, arguments.cap_requested
    if new and asked is not None and granted < asked:
        log(
            f"max_running_requests is capped to {granted} by the mamba state cache. To raise it: increase "
            "--mamba-full-memory-ratio or --max-mamba-cache-size, or halve the state size with --mamba-ssm-dtype "
            "bfloat16."
        )
    time.sleep(simulation.startup_s * (1 - WARM_UP_SHARE) - took_s)


def memory_pools(arguments: Arguments) -> None:
    """What the caches came to."""
    tokens, gb = (268_469, 8.19) if arguments.mtp else (928_864, 28.35)
    log(
        f"Mamba Cache is allocated. max_mamba_cache_size: {arguments.cap}, conv_state size: 0.18GB, "
        "ssm_state size: 9.14GB "
    )
    log(f"KV Cache is allocated. #tokens: {tokens}, K size: {gb} GB, V size: {gb} GB")
    log("Memory pool end. avail mem=25.02 GB")
    log("Capture cuda graph begin. This can take up to several minutes. avail mem=24.92 GB")
    log("Capture cuda graph end. Time elapsed: 0.01 s. mem usage=1.09 GB. avail mem=23.84 GB.")
    log(
        f"max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={arguments.cap}, context_len={arguments.context_length}, available_gpu_mem=12.87 GB"
    )


def listening(arguments: Arguments) -> None:
    """The port is open; it is not ready yet."""
    log(f"INFO:     Uvicorn running on http://127.0.0.1:{arguments.port} (Press CTRL+C to quit)")


def refuse(error: Exception) -> NoReturn:
    """End as on flags that exclude each other: a traceback, code 1."""
    words = f"{type(error).__name__}: {error}".removesuffix(": ")
    print(f'Traceback (most recent call last):\n  File "sglang/launch_server.py", line 66\n{words}', file=sys.stderr)
    raise SystemExit(1)


def run_out_of_memory() -> NoReturn:
    """End as when weights and caches do not fit."""
    log("Scheduler hit an exception: Traceback (most recent call last):")
    print("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", file=sys.stderr)
    log("Received sigquit from a child process. It usually means the child failed.")
    die()


def crash() -> NoReturn:
    """End as when a kernel faults while serving."""
    log("Scheduler hit an exception: Traceback (most recent call last):")
    print('  File "sglang/srt/managers/scheduler.py", line 1, in event_loop_overlap', file=sys.stderr)
    print("RuntimeError: CUDA error: an illegal memory access was encountered (SIMULATED)\n", file=sys.stderr)
    log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
    die()


def die() -> NoReturn:
    """SIGKILL to itself: how the real server ends after a crash, and 0.5.11 after a clean stop too."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # not reached
