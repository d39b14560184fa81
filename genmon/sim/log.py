"""Lines as SGLang logs them: a stamp, no level, its own logger on stderr and the access log on stdout."""

from __future__ import annotations

import sys
import time


def log(message: str) -> None:
    """One line of SGLang's logger."""
    print(f"{_stamp()} {message}", file=sys.stderr, flush=True)


def access(message: str) -> None:
    """One line of uvicorn's access log."""
    print(f"{_stamp()} INFO:     {message}", flush=True)


def _stamp() -> str:
    return time.strftime("[%Y-%m-%d %H:%M:%S]")
