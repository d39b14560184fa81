"""A stand-in for one SGLang server, of the standard library only: it starts in a tenth of a second.

Run as a script. It serves the endpoints the fleet asks, and fails as its flags, or a POST to /stub, say.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

parser = argparse.ArgumentParser()
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--nccl-port", type=int)
parser.add_argument("--api-key")
parser.add_argument("--listen-after", type=float, default=0.0, metavar="S")
parser.add_argument("--die", nargs=2, metavar=("TEXT", "CODE"), help="at the start, with this in the log")
parser.add_argument("--die-once", type=Path, metavar="FILE", help="--die only while this file does not exist")
parser.add_argument("--children", type=int, default=0, help="with an empty environment, as setproctitle makes it")
parser.add_argument("--ignore-term", action="store_true")
parser.add_argument("--no-metrics", action="store_true")
parser.add_argument("--mtp", action="store_true")
parser.add_argument("--smoke", default="ok", help="ok, blank, thought, or a status")
parser.add_argument("--rate", type=float, default=1000.0, help="tokens decoded a second while it is not told to hang")
parser.add_argument("--bad-info", action="store_true")
options = parser.parse_args()

MESSAGES: dict[str, dict[str, str]] = {
    "ok": {"content": "Ready."},
    "blank": {"content": " \n"},
    "thought": {"content": "", "reasoning_content": "Hm."},
}
SLEEPER = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]


class Clock:
    """Counters that run until they are told to stand still."""

    def __init__(self) -> None:
        self.decoding = self.prefilling = True
        self.decoded = self.prefilled = 0.0
        self._at = time.monotonic()

    def read(self) -> tuple[int, int]:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        self.decoded += options.rate * passed * self.decoding
        self.prefilled += options.rate * passed * self.prefilling
        return int(self.decoded), int(self.prefilled)


clock = Clock()
aborted: list[str] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        decoded, prefilled = clock.read()
        if self.path == "/env":
            self._json(dict(os.environ))
        elif self.path == "/aborted":
            self._json(aborted)
        elif self.path == "/metrics" and not options.no_metrics:
            self._reply(200, metrics(decoded, prefilled).encode(), "text/plain")
        elif options.api_key and self.headers["Authorization"] != f"Bearer {options.api_key}":
            self._json({"error": "Unauthorized"}, 401)
        elif self.path == "/model_info":
            self._json({"model_path": "m"})
        elif self.path == "/server_info":
            self._json({"version": [], "internal_states": 3} if options.bad_info else info())
        elif self.path == "/v1/loads":
            load = {"num_running_reqs": 3, "num_waiting_reqs": 1, "num_used_tokens": decoded, "gen_throughput": 0.0}
            self._json({"loads": [load | {"max_running_requests": 96}]})
        else:
            self._json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if self.path == "/stub":
            clock.read()
            clock.decoding = body.get("decoding", clock.decoding)
            clock.prefilling = body.get("prefilling", clock.prefilling)
            options.smoke = body.get("smoke", options.smoke)
            self._json({})
            if "die" in body:
                die(body["die"], body["code"])
        elif self.path == "/abort_request":
            aborted.append(body["rid"])
            self._json({})
        elif options.smoke.isdigit():
            self._json({"message": "no"}, int(options.smoke))
        else:
            self._json({"choices": [{"message": MESSAGES[options.smoke], "finish_reason": "stop"}]})

    def _json(self, value: object, status: int = 200) -> None:
        self._reply(status, json.dumps(value).encode(), "application/json")

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def info() -> dict[str, object]:
    return {
        "version": "0.5.11",
        "api_key": options.api_key,
        "speculative_algorithm": "EAGLE" if options.mtp else None,
        "max_running_requests": 64,
        "internal_states": [{"effective_max_running_requests_per_dp": 48}],
    }


def metrics(decoded: int, prefilled: int) -> str:
    labels = 'model_name="m",tp_rank="0"'
    return (
        "# TYPE sglang:num_running_reqs gauge\n"
        f"sglang:num_running_reqs{{{labels}}} 3.0\n"
        f"sglang:num_queue_reqs{{{labels}}} 1.0\n"
        f"sglang:full_token_usage{{{labels}}} 0.25\n"
        f"sglang:token_usage{{{labels}}} 0.5\n"
        f"sglang:mamba_usage{{{labels}}} 0.5\n"
        f"sglang:spec_accept_length{{{labels}}} 2.8\n"
        f'sglang:realtime_tokens_total{{mode="decode",{labels}}} {decoded}.0\n'
        f'sglang:realtime_tokens_total{{mode="prefill_compute",{labels}}} {prefilled}.0\n'
    )


def die(text: str, code: int) -> None:
    """Write a text as the end of the log, and end with a code, or by a signal when it is negative."""
    print(text, flush=True)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def on_term(number: int, frame: FrameType | None) -> None:
    print("SIGTERM received. signum=None frame=None. Draining requests and shutting down...", flush=True)
    if not options.ignore_term:
        os._exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, on_term)
    for _ in range(options.children):
        subprocess.Popen(SLEEPER, env={}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if options.die and not (options.die_once and options.die_once.exists()):
        if options.die_once:
            options.die_once.touch()
        die(options.die[0], int(options.die[1]))
    time.sleep(options.listen_after)
    ThreadingHTTPServer.daemon_threads = True
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    print("The server is fired up and ready to roll!", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
