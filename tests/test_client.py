"""One completion over real loopback HTTP: every reply a server can give, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from genmon.engine.client import CompletionClient
from genmon.engine.hosts import ChatRequest
from genmon.errors import RowRefused, ServerBusy, ServerGone
from genmon.job.row import Answer, Message

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REQUEST = ChatRequest(
    rid="0" * 32, messages=(Message(role="user", content="Why?"),), params={"max_tokens": 9, "top_k": 20}
)


def ask(handler: Handler, *, spec_details: str | None = None) -> Answer:
    """Send one request to a server that answers with `handler`."""

    async def run() -> Answer:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        client = CompletionClient(f"http://{host}:{port}", "the-model", None)
        try:
            return await client.complete(REQUEST, spec_details=spec_details)
        finally:
            await client.close()
            await runner.cleanup()

    return asyncio.run(run())


def replying(status: int, body: object) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return handler


CHOICE = {
    "message": {"role": "assistant", "content": "Since.", "reasoning_content": "Hm.", "tool_calls": None},
    "finish_reason": "stop",
}
REPLY = {
    "choices": [CHOICE],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8, "reasoning_tokens": 2},
}


def test_the_request_carries_model_messages_parameters_and_rid() -> None:
    bodies: list[dict[str, object]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append(json.loads(await request.read()))
        return web.json_response(REPLY)

    answer = ask(handler, spec_details="return_meta_info")
    assert bodies == [
        {
            "model": "the-model",
            "messages": [{"role": "user", "content": "Why?"}],
            "max_tokens": 9,
            "top_k": 20,
            "rid": "0" * 32,
            "stream": False,
            "return_meta_info": True,
        }
    ]
    assert answer == Answer(
        content="Since.",
        reasoning="Hm.",
        finish_reason="stop",
        prompt_tokens=3,
        completion_tokens=5,
        reasoning_tokens=2,
    )


def test_null_content_is_an_empty_answer_not_an_error() -> None:
    reply = {"choices": [{"message": {"content": None, "reasoning_content": "Hm"}, "finish_reason": "length"}]}
    answer = ask(replying(200, reply))
    assert (answer.content, answer.completion_tokens) == ("", None)


@pytest.mark.parametrize(
    "extra",
    [
        {"sglext": {"spec_tokens_details": {"spec_accept_length": 2.75}}},
        {"choices": [{**CHOICE, "meta_info": {"spec_accept_length": 2.75}}]},
    ],
)
def test_acceptance_is_read_where_either_version_puts_it(extra: dict[str, object]) -> None:
    assert ask(replying(200, {**REPLY, **extra})).acceptance_length == 2.75


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_row_is_the_rows_fault_in_the_servers_words(status: int) -> None:
    body = {"object": "error", "message": "The input is longer\nthan the context.", "code": status}
    with pytest.raises(RowRefused, match="The input is longer than the context"):
        ask(replying(status, body))


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_other_statuses_are_the_servers_fault(status: int) -> None:
    with pytest.raises(ServerBusy, match=str(status)):
        ask(replying(status, {"message": "no"}))


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{"message": 3}]}, "text", [1], None])
def test_garbage_is_the_servers_fault(body: object) -> None:
    with pytest.raises(ServerBusy, match="not a completion"):
        ask(replying(200, body))


def test_a_body_that_is_no_json_is_the_servers_fault() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"choices": [', content_type="application/json")

    with pytest.raises(ServerBusy):
        ask(handler)


def test_a_cut_connection_means_the_server_is_gone() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    with pytest.raises(ServerGone):
        ask(handler)


def test_a_refused_connection_means_the_server_is_gone() -> None:
    async def run() -> None:
        client = CompletionClient("http://127.0.0.1:1", "m", None)
        try:
            await client.complete(REQUEST)
        finally:
            await client.close()

    with pytest.raises(ServerGone):
        asyncio.run(run())
