"""A simulated SGLang server: `python -m genmon.sim.server <SGLang flags>`, a real process that speaks its HTTP.

What it simulates comes in the environment variable GENMON_SIM; what it does on flags, signals, aborts and
faults is what the real versions were seen to do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec import Struct

from genmon.config.schema import SimulationConfig
from genmon.job.row import Json
from genmon.sim import replies
from genmon.sim.arguments import Arguments, parse
from genmon.sim.decode import Request, Scheduler
from genmon.sim.gpu import Load, write_load

_LOAD_EVERY_S = 0.1
_DRAIN_LOOK_S = 0.25
"""The real server looks every 5 s whether it is drained."""
_QUIET = ("/metrics", "/health", "/v1/loads", "/model_info", "/server_info")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class Orders(Struct, frozen=True):
    """GENMON_SIM: what to simulate, which GPU, and where to publish the load."""

    simulation: SimulationConfig = SimulationConfig()
    gpu_index: int = 0
    load_path: str | None = None


class SimulatedServer:
    """The HTTP face of one simulated scheduler."""

    def __init__(self, arguments: Arguments, orders: Orders) -> None:
        """Nothing runs until `serve`."""
        self._arguments, self._orders = arguments, orders
        self._version = orders.simulation.version
        self._scheduler = Scheduler(arguments, orders.simulation, orders.gpu_index)
        self._up = self._draining = False
        self._drained = asyncio.Event()
        self._errors = 0.0

    async def serve(self) -> None:
        """Open the port, warm up, serve until SIGTERM has drained everything."""
        app = web.Application(client_max_size=1 << 28, middlewares=[self._guard])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_route("*", "/flush_cache", self._flush)
        for path in ("/health", "/health_generate"):
            app.router.add_get(path, self._health)
        app.router.add_get("/metrics", self._metrics)
        for path, body in (
            ("/server_info", lambda: replies.server_info(self._scheduler, self._version)),
            ("/get_server_info", lambda: replies.server_info(self._scheduler, self._version)),
            ("/model_info", lambda: replies.model_info(self._scheduler)),
            ("/v1/models", lambda: replies.models(self._scheduler)),
            ("/v1/loads", lambda: replies.loads(self._scheduler, self._version)),
        ):
            app.router.add_get(path, self._json(body))
        if self._version == "0.5.11":
            app.router.add_get("/get_load", self._json(lambda: [self._load()]))
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._arguments.port, backlog=1024).start()
        tasks = [
            asyncio.create_task(self._scheduler.decode()),
            asyncio.create_task(self._publish()),
            asyncio.create_task(self._misfortune()),
        ]
        _log(f"INFO:     Uvicorn running on http://127.0.0.1:{self._arguments.port} (Press CTRL+C to quit)")
        await asyncio.sleep(self._orders.simulation.startup_s * 0.2)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._drain)
        self._up = True
        _log("The server is fired up and ready to roll!")
        await self._drained.wait()
        for task in tasks:
            task.cancel()
        await runner.cleanup()

    def _json(self, body: Callable[[], Json]) -> Handler:
        async def handler(_: web.Request) -> web.StreamResponse:
            return _reply(body())

        return handler

    def _load(self) -> dict[str, Json]:
        scheduler = self._scheduler
        count = len(scheduler.running) + len(scheduler.queue)
        return {"dp_rank": None, "num_reqs": count, "num_waiting_reqs": len(scheduler.queue), "num_tokens": 0}

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authorization and the access log."""
        key = self._arguments.api_key
        open_path = request.path.startswith(("/health", "/metrics"))
        if key and not open_path and request.headers.get("Authorization") != f"Bearer {key}":
            return _reply({"error": "Unauthorized"}, 401)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = _reply({"detail": error.reason}, error.status)
        if not request.path.startswith(_QUIET):
            _log(f'INFO:     {request.remote}:0 - "{request.method} {request.path} HTTP/1.1" {response.status}')
        return response

    async def _health(self, _: web.Request) -> web.Response:
        if not self._up or self._draining:
            return web.Response(status=503)
        await asyncio.sleep(1.0)
        return web.Response(status=503 if self._scheduler.hung else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        if not self._arguments.metrics:
            return _reply({"detail": "Not Found"}, 404)
        return web.Response(text=replies.metrics(self._scheduler, self._version), content_type="text/plain")

    async def _flush(self, _: web.Request) -> web.Response:
        if not self._scheduler.idle:
            return web.Response(status=400, text="Flush cache failed.\n")
        return web.Response(text="Cache flushed.\n")

    async def _abort(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read() or b"{}", type=dict[str, object])
        rid = body.get("rid")
        if body.get("abort_all") or isinstance(rid, str):
            self._scheduler.abort(None if body.get("abort_all") else str(rid))
        return web.Response()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, object])
        except msgspec.MsgspecError:
            return _reply(replies.error("1 validation error:\n  {'type': 'json_invalid'}", "Bad Request"), 400)
        messages = body.get("messages")
        refusal = _refusal(body, messages, self._arguments.context_length)
        if refusal:
            return _reply(replies.error(refusal), 400)
        self._errors += self._orders.simulation.error_share
        if self._errors >= 1:
            self._errors -= 1
            return _reply(replies.error("Internal server error (SIMULATED)", "InternalServerError", 500), 500)
        prompt = msgspec.json.encode(messages).decode()
        seed = body.get("seed")
        ceiling = body.get("max_tokens") or body.get("max_completion_tokens")
        room = self._arguments.context_length - len(prompt) // 4 - 1
        running = self._scheduler.admit(
            rid=str(body.get("rid") or os.urandom(16).hex()),
            prompt=prompt if seed is None else f"{prompt}{seed}",
            max_tokens=ceiling if isinstance(ceiling, int) else room,
            ignore_eos=bool(body.get("ignore_eos")),
        )
        template = body.get("chat_template_kwargs")
        wanted = not isinstance(template, dict) or template.get("enable_thinking", True)
        thinking = bool(wanted) and self._arguments.reasoning_parser is not None
        try:
            if body.get("stream"):
                return await self._stream(request, running, body, thinking)
            await running.done.wait()
        finally:
            self._scheduler.drop(running)  # the client hung up, or it is done and this does nothing
        model = str(body.get("model") or self._arguments.served_model_name)
        return _reply(replies.completion(running, model, thinking, self._version, body, self._scheduler))

    async def _stream(
        self, request: web.Request, running: Request, body: dict[str, object], thinking: bool
    ) -> web.StreamResponse:
        """Chunks as the words come; usage, when asked for, in a chunk of its own."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        model = str(body.get("model"))

        async def send(delta: dict[str, Json], finish: str | None) -> None:
            choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            await _chunk(response, running.rid, model, [choice], None)

        await send({"role": "assistant", "content": "", "reasoning_content": None}, None)
        sent = 0
        while not running.done.is_set():
            await running.progress.wait()
            running.progress.clear()
            come = int(running.tokens)
            if come > sent:
                field = "reasoning_content" if thinking and sent < running.length * 2 // 3 else "content"
                await send({field: "word " * (come - sent)}, None)
                sent = come
        await send({}, replies.answer_parts(running, thinking, self._version)[2])
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            await _chunk(response, running.rid, model, [], replies.usage(running, thinking, self._version))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        _log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        asyncio.get_running_loop().create_task(self._end_when_idle())

    async def _end_when_idle(self) -> None:
        while True:
            left = len(self._scheduler.running) + len(self._scheduler.queue)
            _log(f"Gracefully exiting... Remaining number of requests {left}. Remaining requests remaining_rids=[].")
            if not left:
                self._drained.set()
                return
            await asyncio.sleep(_DRAIN_LOOK_S)

    async def _publish(self) -> None:
        path = self._orders.load_path
        while path:
            running = 0 if self._scheduler.hung else len(self._scheduler.running)
            write_load(Path(path), Load(os.getpid(), True, running, self._arguments.mtp))
            await asyncio.sleep(_LOAD_EVERY_S)

    async def _misfortune(self) -> None:
        """The faults that come with time."""
        simulation = self._orders.simulation
        if simulation.hang_after_s is not None:
            await asyncio.sleep(simulation.startup_s * 0.2 + simulation.hang_after_s)
            self._scheduler.hung = True
        if simulation.crash_after_s is not None:
            await asyncio.sleep(simulation.startup_s * 0.2 + simulation.crash_after_s)
            _log("Scheduler hit an exception: Traceback (most recent call last):")
            print('  File "sglang/srt/managers/scheduler.py", line 1, in event_loop_overlap')
            print("RuntimeError: CUDA error: an illegal memory access was encountered (SIMULATED)")
            _log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
            _die()


def main() -> None:
    """Run one server."""
    orders = msgspec.json.decode(os.environ.get("GENMON_SIM", "{}"), type=Orders)
    simulation = orders.simulation
    try:
        arguments = parse(sys.argv[1:], simulation.version)
    except (ValueError, RuntimeError) as error:
        print(f"Traceback (most recent call last):\n{type(error).__name__}: {error}", flush=True)
        if isinstance(error, ValueError):
            raise SystemExit(1) from None
        _log("Received sigquit from a child process. It usually means the child failed.")
        _die()
    _log(f"SIMULATED SGLang {simulation.version}: nothing here was computed by a model")
    _log(f"server_args=ServerArgs(model_path='{arguments.model_path}', port={arguments.port})")
    _log("Load weight begin. avail mem=139.13 GB")
    time.sleep(simulation.startup_s * 0.8)
    _log(
        f"Load weight end. elapsed={simulation.startup_s * 0.8:.2f} s, type=Qwen3_5ForConditionalGeneration, "
        "avail mem=88.07 GB, mem usage=51.05 GB."
    )
    _log(
        "max_total_num_tokens=928864, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={arguments.cap}, context_len={arguments.context_length}, available_gpu_mem=12.87 GB"
    )
    asyncio.run(_serve(arguments, orders))
    if simulation.version == "0.5.11":
        _die()  # as the real one does, after a perfect drain too


async def _serve(arguments: Arguments, orders: Orders) -> None:
    await SimulatedServer(arguments, orders).serve()


def _refusal(body: dict[str, object], messages: object, context: int) -> str | None:
    """Why SGLang would answer 400, in its words."""
    if messages is None:
        return "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}"
    if not isinstance(messages, list) or not messages:
        return "Messages cannot be empty."
    for message in messages:
        if not isinstance(message, dict) or str(message.get("role")).lower() not in _ROLES:
            return "1 validation error:\n  {'type': 'value_error', 'loc': ('body', 'messages', 0, 'role')}"
    temperature, ceiling = (
        body.get("temperature"),
        body.get("max_tokens") or body.get("max_completion_tokens"),
    )
    if isinstance(temperature, int | float) and temperature < 0:
        return f"temperature must be non-negative, got {temperature}."
    if isinstance(ceiling, int) and ceiling < 0:
        return f"max_new_tokens must be at least 0, got {ceiling}."
    prompt = len(msgspec.json.encode(messages)) // 4
    if prompt >= context:
        return f"The input ({prompt} tokens) is longer than the model's context length ({context} tokens)."
    if isinstance(ceiling, int) and prompt + ceiling > context:
        return (
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {prompt + ceiling} tokens: {prompt} tokens from the input messages and {ceiling} tokens for "
            "the completion. Please reduce the number of tokens in the input messages or the completion to fit "
            "within the limit."
        )
    return None


def _reply(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


async def _chunk(
    response: web.StreamResponse, rid: str, model: str, choices: list[Json], usage: dict[str, Json] | None
) -> None:
    chunk = {
        "id": rid,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
    }
    if usage is not None:
        chunk["usage"] = usage
    await response.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")


def _log(message: str) -> None:
    print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {message}", flush=True)


def _die() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
