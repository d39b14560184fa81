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
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec import Struct

from genmon.config.schema import SimulationConfig
from genmon.job.row import Json
from genmon.sim import prometheus, replies, start
from genmon.sim.answer import said
from genmon.sim.arguments import NEW, Arguments, lacks_memory, numbers, parse
from genmon.sim.decode import Request, Scheduler
from genmon.sim.gpu import Load, write_load
from genmon.sim.log import access, log
from genmon.sim.refusals import bad_json, ceiling, prompt_tokens, refusal
from genmon.sim.replies import Replies

_LOAD_EVERY_S = 0.1
_DRAIN_LOOK_S = 0.25
"""The real server looks every 5 s whether it is drained, and says so each time."""
_DRAIN_SAY_S = 5.0
_HEALTH_S = 1.0
"""The real `/health` sleeps this long before its first look."""
_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the "
    "operation will not be performed.)\n"
)
_DEPRECATED = {"/get_server_info": "/server_info", "/get_model_info": "/model_info", "/get_load": "/v1/loads"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
        self._new = numbers(self._version) >= NEW
        self._scheduler = Scheduler(arguments, orders.simulation, orders.gpu_index)
        self._replies = Replies(self._scheduler, self._version)
        self._up = self._draining = False
        self._drained = asyncio.Event()
        self._errors = 0.0
        self._live: set[str] = set()
        """Ids of requests not yet answered; on 0.5.11 also of those refused late, for ever."""
        self._ending: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Open the port, warm up, serve until SIGTERM has drained everything."""
        app = web.Application(client_max_size=1 << 28, middlewares=[self._guard])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_route("*", "/flush_cache", self._flush)
        app.router.add_get("/metrics", self._metrics, allow_head=False)
        for path in ("/health", "/health_generate"):
            app.router.add_get(path, self._health)
        bodies: list[tuple[str, Callable[[], Json]]] = [
            ("/server_info", self._replies.server_info),
            ("/get_server_info", self._replies.server_info),
            ("/model_info", self._replies.model_info),
            ("/get_model_info", self._replies.model_info),
            ("/v1/models", self._replies.models),
            ("/v1/loads", self._replies.loads),
        ]
        if not self._new:
            bodies.append(("/get_load", self._replies.get_load))
        for path, body in bodies:
            app.router.add_get(path, self._json(body))
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._arguments.port, backlog=1024).start()
        tasks = [asyncio.create_task(task) for task in self._background()]
        start.listening(self._arguments)
        await asyncio.sleep(self._orders.simulation.startup_s * start.WARM_UP_SHARE)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._drain)
        self._up = True
        log(start.READY)
        tasks += [asyncio.create_task(task) for task in self._faults()]
        await self._drained.wait()
        for task in tasks:
            task.cancel()
        await runner.cleanup()

    def _background(self) -> list[Coroutine[None, None, None]]:
        path = self._orders.load_path
        return [self._scheduler.decode(), *([self._publish(Path(path))] if path else [])]

    def _faults(self) -> list[Coroutine[None, None, None]]:
        simulation = self._orders.simulation
        faults: list[Coroutine[None, None, None]] = []
        if simulation.hang_after_s is not None:
            faults.append(self._hang(simulation.hang_after_s))
        if simulation.crash_after_s is not None:
            faults.append(self._crash(simulation.crash_after_s))
        return faults

    def _json(self, body: Callable[[], Json]) -> Handler:
        async def handler(_: web.Request) -> web.StreamResponse:
            return _reply(body())

        return handler

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authorization and the access log."""
        key = self._arguments.api_key
        open_path = request.path.startswith(("/health", "/metrics"))
        response: web.StreamResponse
        if key and not open_path and request.headers.get("Authorization") != f"Bearer {key}":
            response = _reply({"error": "Unauthorized"}, 401)
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = _reply({"detail": error.reason}, error.status)
                if "Allow" in error.headers:
                    response.headers["Allow"] = error.headers["Allow"]
        if request.path in _DEPRECATED and response.status == 200:
            log(
                f"Endpoint '{request.path}' is deprecated and will be removed in a future version. Please use "
                f"'{_DEPRECATED[request.path]}' instead."
            )
        if not (self._arguments.quiet and request.path.startswith(self._arguments.quiet)):
            peer = request.transport.get_extra_info("peername") if request.transport else None
            host, port = peer[:2] if peer else ("127.0.0.1", 0)
            access(f'{host}:{port} - "{request.method} {request.path_qs} HTTP/1.1" {response.status} {response.reason}')
        return response

    async def _health(self, request: web.Request) -> web.Response:
        if not self._up or self._draining:
            return web.Response(status=503)
        asks = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1").lower() not in ("0", "false")
        if request.path == "/health" and not asks:
            return web.Response()
        await asyncio.sleep(_HEALTH_S)
        return web.Response(status=503 if self._scheduler.hung else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        if not self._arguments.metrics:
            raise web.HTTPNotFound
        page = prometheus.page(self._scheduler, self._version)
        return web.Response(body=page.encode(), headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def _flush(self, _: web.Request) -> web.Response:
        if not self._scheduler.idle:
            return web.Response(status=400, text="Flush cache failed.\n")
        self._scheduler.reset_acceptance()
        return web.Response(text=_FLUSHED)

    async def _abort(self, request: web.Request) -> web.Response:
        body = _object(await request.read() or b"{}") or {}
        rid = body.get("rid")
        if body.get("abort_all"):
            self._scheduler.abort(None)
        elif isinstance(rid, str):
            self._scheduler.abort(rid)
        return web.Response()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = _object(await request.read())
        refused = bad_json() if body is None else refusal(body, self._arguments, new=self._new)
        if body is None or refused is not None:
            if refused is not None and refused.remembered and not self._new:
                self._live.add(os.urandom(16).hex())
            return _reply(refused.body if refused else None, 400)
        self._errors += self._orders.simulation.error_share
        if self._errors >= 1:
            self._errors -= 1
            return _reply(replies.error("Internal server error (SIMULATED)", "InternalServerError", 500), 500)
        running = self._admit(body)
        self._live.add(running.rid)
        try:
            if running.streaming:
                return await self._stream(request, running, body)
            await running.done.wait()
        finally:
            self._scheduler.drop(running)  # the client hung up, or it is done and this does nothing
            self._live.discard(running.rid)
        model = str(body.get("model") or self._arguments.served_model_name)
        return _reply(self._replies.completion(running, model, body))

    def _admit(self, body: dict[str, Json]) -> Request:
        prompt = msgspec.json.encode(body["messages"]).decode()
        seed, template = body.get("seed"), body.get("chat_template_kwargs")
        wanted = not isinstance(template, dict) or template.get("enable_thinking", True)
        room = self._arguments.context_length - prompt_tokens(body["messages"]) - 1
        return self._scheduler.admit(
            rid=str(body.get("rid") or os.urandom(16).hex()),
            prompt=prompt if seed is None else f"{prompt}{seed}",
            max_tokens=ceiling(body) or room,
            ignore_eos=bool(body.get("ignore_eos")),
            thinking=bool(wanted) and self._arguments.reasoning_parser is not None,
            streaming=bool(body.get("stream")),
        )

    async def _stream(self, request: web.Request, running: Request, body: dict[str, Json]) -> web.StreamResponse:
        """Chunks as the words come; usage, when asked for, in a chunk of its own."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        model, whole = str(body.get("model")), said(running)
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}

        async def send(choices: list[Json], **more: Json) -> None:
            chunk = {
                "id": running.rid,
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": model,
                "choices": choices,
                **more,
            }
            if options.get("continuous_usage_stats"):
                chunk["usage"] = self._replies.usage(running)
            await response.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")

        async def say(delta: dict[str, Json], finish: str | None = None) -> None:
            ended = whole.finish == "stop" and finish == "stop"
            await send(
                [
                    {
                        "index": 0,
                        "delta": delta,
                        "logprobs": None,
                        "finish_reason": finish,
                        "matched_stop": replies.EOS if ended else None,
                    }
                ]
            )

        await say({"role": "assistant", "content": "", "reasoning_content": None})
        sent = whole.first(0)
        while not running.done.is_set():
            await running.progress.wait()
            running.progress.clear()
            come = whole.first(int(running.tokens + 1e-6)) if not running.done.is_set() else said(running)
            for name, before, now in (
                ("reasoning_content", sent.reasoning, come.reasoning),
                ("content", sent.content, come.content),
            ):
                if len(now) > len(before):
                    more = " ".join(now[len(before) :])
                    await say({name: f" {more}" if before else more})
            sent = come
        await say({"reasoning_content": None}, said(running).finish)
        if options.get("include_usage"):
            await send([], usage=self._replies.usage(running))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._ending = asyncio.create_task(self._end_when_idle())

    async def _end_when_idle(self) -> None:
        """Look until no request is left. New ones are accepted meanwhile, as in the real server."""
        told_at = -_DRAIN_SAY_S
        while True:
            now = time.monotonic()
            if not self._live or now - told_at >= _DRAIN_SAY_S:
                told_at = now
                log(
                    f"Gracefully exiting... Remaining number of requests {len(self._live)}. Remaining requests "
                    f"remaining_rids={sorted(self._live)}."
                )
            if not self._live:
                self._drained.set()
                return
            await asyncio.sleep(_DRAIN_LOOK_S)

    async def _publish(self, path: Path) -> None:
        """Tell the simulated GPU what it has to do."""
        while True:
            hung = self._scheduler.hung
            running = 0 if hung else len(self._scheduler.running)
            write_load(path, Load(os.getpid(), True, running, self._arguments.mtp, hung))
            await asyncio.sleep(_LOAD_EVERY_S)

    async def _hang(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._scheduler.hung = True

    async def _crash(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        start.crash()


def main() -> None:
    """Run one server."""
    orders = msgspec.json.decode(os.environ.get("GENMON_SIM", "{}"), type=Orders)
    version = orders.simulation.version
    log(f"SIMULATED SGLang {version}: nothing here is computed by a model")
    try:
        arguments = parse(sys.argv[1:], version)
    except (ValueError, AssertionError, TypeError) as error:
        start.refuse(error)
    if orders.load_path:
        write_load(Path(orders.load_path), Load(os.getpid(), False, 0, arguments.mtp))
    start.load(arguments, orders.simulation)
    if lacks_memory(arguments):
        start.run_out_of_memory()
    start.memory_pools(arguments)
    asyncio.run(SimulatedServer(arguments, orders).serve())
    if numbers(version) < NEW:
        start.die()  # as the real one does, after a perfect drain too


def _object(raw: bytes) -> dict[str, Json] | None:
    """A JSON object, or None."""
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _reply(body: Json, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


if __name__ == "__main__":
    main()
