"""What a running server answers, as files for the contract tests.

    python -m benchmarks.h200.capture URL FOLDER SUFFIX

One `.http` file an endpoint: status line, body. `metrics` and `server_info` are cut down afterwards (`tidy.py`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import aiohttp

_ASKED = ("/metrics", "/server_info", "/v1/loads", "/get_load", "/model_info", "/health")


async def capture(url: str, folder: Path, suffix: str) -> dict[str, float]:
    """Ask everything once; ms by path."""
    folder.mkdir(parents=True, exist_ok=True)
    took_ms = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        for path in _ASKED:
            began = time.perf_counter()
            async with session.get(url + path) as response:
                body = await response.text()
            took_ms[path] = round((time.perf_counter() - began) * 1000, 1)
            name = path[1:].replace("/", "_") + suffix
            head = f"HTTP/1.1 {response.status} {response.reason}\nContent-Type: {response.content_type}\n\n"
            (folder / f"{name}.http").write_text(head + body)
    return took_ms


if __name__ == "__main__":
    print(asyncio.run(capture(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
