"""A server that answers at once, so that only the client's own cost is measured.

python -m benchmarks.stub_server PORT [DELAY_S]
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web

DELAY_S = 0.02
ANSWER = "The answer is forty two, since the question was never asked. "
THOUGHT = "Step {}: compare what is known with what is asked, then go on. "


def reply() -> bytes:
    """About 4 kB, the size of a short thinking answer. The text varies, so that it is no loop."""
    message = {
        "role": "assistant",
        "content": " ".join(f"{ANSWER}{n * n}" for n in range(8)),
        "reasoning_content": "".join(THOUGHT.format(n * 37 % 101) for n in range(55)),
    }
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 120, "completion_tokens": 900, "total_tokens": 1020},
    }
    return json.dumps(body).encode()


def main() -> None:
    port = int(sys.argv[1])
    delay_s = float(sys.argv[2]) if len(sys.argv) > 2 else DELAY_S
    body = reply()
    decoded = 0

    async def chat(request: web.Request) -> web.Response:
        nonlocal decoded
        await request.read()
        await asyncio.sleep(delay_s)
        decoded += 900
        return web.Response(body=body, content_type="application/json")

    async def server_info(_: web.Request) -> web.Response:
        state = {"effective_max_running_requests_per_dp": 256}
        return web.json_response({"version": "0.5.11", "speculative_algorithm": None, "internal_states": [state]})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f'sglang:realtime_tokens_total{{mode="decode"}} {decoded}\n')

    async def model_info(_: web.Request) -> web.Response:
        return web.json_response({"model_path": "stub"})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/server_info", server_info)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/model_info", model_info)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=lambda *_: None, backlog=4096)


if __name__ == "__main__":
    main()
