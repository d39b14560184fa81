"""One completion through the openai client: the only module that knows it.

The typed `chat.completions.create` spends twice the CPU of the request itself on building and validating
models; `post` with `cast_to=object` gives the parsed JSON, which one msgspec conversion then checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import openai
from msgspec import Struct
from openai import AsyncOpenAI, AsyncStream, DefaultAioHttpClient

from genmon.engine.hosts import ChatRequest
from genmon.errors import RowRefused, ServerBusy, ServerError, ServerGone
from genmon.job.row import Answer, Json

_ROW_IS_AT_FAULT = frozenset({400, 413, 422})
"""Statuses by which SGLang refuses a request for what it holds. Others (401, 404, 429, 5xx) are the server's."""


class _Message(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Json] | None = None


class _SpecDetails(Struct):
    spec_accept_length: float | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None
    meta_info: _SpecDetails | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None


class _SglExt(Struct):
    spec_tokens_details: _SpecDetails | None = None


class _Reply(Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
    sglext: _SglExt | None = None


class _Piece(Struct):
    delta: _Message


class _Chunk(Struct):
    choices: list[_Piece] = []
    usage: _Usage | None = None


class CompletionClient:
    """One long-lived client of one server. No retries and no wall-clock limit: the dispatcher judges progress."""

    def __init__(self, base_url: str, model: str, api_key: str | None) -> None:
        self._model = model
        self._openai = AsyncOpenAI(
            base_url=f"{base_url.rstrip('/')}/v1",
            api_key=api_key or "none",
            max_retries=0,
            timeout=None,
            http_client=DefaultAioHttpClient(timeout=None),
        )

    async def complete(self, request: ChatRequest, *, spec_details: str | None = None) -> Answer:
        """Generate one turn.

        Args:
            request: the turn.
            spec_details: name of the request field by which this server's version tells acceptance, if any.

        Raises:
            ServerGone: the connection was refused, reset or cut.
            ServerBusy: 5xx and the like, or a reply that is no completion.
            RowRefused: the server refuses this row for what it holds.
        """
        body = self._body(request, stream=False)
        if spec_details:
            body[spec_details] = True
        try:
            reply = await self._openai.post("/chat/completions", body=body, cast_to=object)
        except (openai.OpenAIError, ValueError) as error:
            raise _translated(error) from error
        return _answer(reply)

    async def stream(self, request: ChatRequest) -> AsyncIterator[int | None]:
        """Generate one turn; yields at each piece of text the completion tokens so far, None if not told.

        Raises what `complete` raises.
        """
        body = self._body(request, stream=True)
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        tokens: int | None = None
        try:
            chunks = await self._openai.post(
                "/chat/completions", body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object]
            )
            async with chunks:
                async for raw in chunks:
                    chunk = msgspec.convert(raw, _Chunk)
                    if chunk.usage is not None and chunk.usage.completion_tokens is not None:
                        tokens = chunk.usage.completion_tokens
                    if any(choice.delta.content or choice.delta.reasoning_content for choice in chunk.choices):
                        yield tokens
        except (openai.OpenAIError, ValueError, msgspec.ValidationError) as error:
            raise _translated(error) from error
        except Exception as error:
            # A stream that is cut raises the transport's own error, whose library differs between openai versions.
            raise ServerGone(f"connection lost: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._openai.close()

    def _body(self, request: ChatRequest, *, stream: bool) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self._model,
            "messages": [msgspec.to_builtins(message) for message in request.messages],
            **request.params,
            "rid": request.rid,
            "stream": stream,
        }
        if request.tools:
            body["tools"] = request.tools
        return body


def _translated(error: Exception) -> ServerError | RowRefused:
    """The error that the dispatcher judges by."""
    if isinstance(error, openai.APIConnectionError):
        return ServerGone(f"connection lost: {error.__cause__ or error}")
    if isinstance(error, openai.APIStatusError):
        sentence = f"HTTP {error.status_code}: {_message(error)}"
        return RowRefused(sentence) if error.status_code in _ROW_IS_AT_FAULT else ServerBusy(sentence)
    return ServerBusy(f"the reply is not a completion: {error}")


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    text = body.get("message") if isinstance(body, dict) else None
    return " ".join(str(text or error.message).split())[:500]


def _answer(reply: object) -> Answer:
    try:
        parsed = msgspec.convert(reply, _Reply)
    except msgspec.ValidationError as error:
        raise ServerBusy(f"the reply is not a completion: {error}") from error
    if not parsed.choices:
        raise ServerBusy("the reply is not a completion: it has no choices")
    choice = parsed.choices[0]
    usage = parsed.usage or _Usage()
    spec = choice.meta_info or (parsed.sglext.spec_tokens_details if parsed.sglext else None)
    return Answer(
        content=choice.message.content or "",
        reasoning=choice.message.reasoning_content,
        finish_reason=choice.finish_reason or "unknown",
        tool_calls=choice.message.tool_calls,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        acceptance_length=spec.spec_accept_length if spec else None,
    )
