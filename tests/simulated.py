"""A simulated server as a child process, asked over plain HTTP."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from genmon.config.schema import SimulationConfig
from genmon.job.row import Json

MTP = [
    *("--speculative-algorithm", "NEXTN"),
    *("--speculative-num-steps", "3"),
    *("--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "4"),
]
FLAGS = [
    *("--model-path", "Qwen/Qwen3.6-27B"),
    *("--served-model-name", "tiny"),
    *("--reasoning-parser", "qwen3"),
]


class Reply(NamedTuple):
    """An HTTP reply; header names are in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Json]:
        return msgspec.json.decode(self.body, type=dict[str, object])


def ask(url: str, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None) -> Reply:
    """One request on a connection of its own. `body` is JSON, or bytes as they are."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, told, response.read())
    finally:
        connection.close()


def chat(url: str, words: str = "Tell me a story.", **more: Json) -> Reply:
    """One chat request."""
    return ask(
        url,
        "POST",
        "/v1/chat/completions",
        {"model": "tiny", "messages": [{"role": "user", "content": words}], **more},
    )


def until(condition: Callable[[], bool], what: str, deadline_s: float = 10.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


class SimulatedProcess:
    """One simulated server."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
        self.process, self.url, self._log_path = process, url, log_path

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def wait_ready(self) -> None:
        until(
            lambda: "fired up and ready" in self.log or self.process.poll() is not None, f"ready; its log: {self.log}"
        )
        assert self.process.poll() is None, self.log

    def ended(self, deadline_s: float = 10.0) -> int:
        return self.process.wait(deadline_s)

    def metric(self, name: str, labels: str = "") -> float:
        """Sum of a series' values."""
        page = ask(self.url, "GET", "/metrics").body.decode()
        values = [
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith(f"sglang:{name}{{") and labels in line
        ]
        return sum(values)

    def loads(self) -> dict[str, Json]:
        """The one entry of /v1/loads."""
        entries = ask(self.url, "GET", "/v1/loads").json["loads"]
        assert isinstance(entries, list)
        entry = entries[0]
        assert isinstance(entry, dict)
        return entry


@contextmanager
def simulated(
    folder: Path,
    simulation: SimulationConfig,
    *flags: str,
    wait: bool = True,
    metrics: bool = True,
    load_path: Path | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[SimulatedProcess]:
    """A server for the length of a block; it is killed at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    orders = {"simulation": simulation, "gpu_index": 0, "load_path": load_path and str(load_path)}
    log_path = folder / f"server-{port}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "genmon.sim.server",
                *FLAGS,
                *flags,
                *(["--enable-metrics"] if metrics else []),
                "--port",
                str(port),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "GENMON_SIM": msgspec.json.encode(orders).decode(), **(env or {})},
        )
    server = SimulatedProcess(process, f"http://127.0.0.1:{port}", log_path)
    try:
        if wait:
            server.wait_ready()
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
