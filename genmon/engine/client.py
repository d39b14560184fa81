"""One completion through the openai client: the only module that knows it.

The typed `chat.completions.create` spends twice the CPU of the request itself on building and validating
models; `post` with `cast_to=object` gives the parsed JSON, which one msgspec conversion then checks.
"""

from __future__ import annotations

import msgspec
import openai
from msgspec import Struct
from openai import AsyncOpenAI, DefaultAioHttpClient

from genmon.engine.hosts import ChatRequest
from genmon.errors import RowRefused, ServerBusy, ServerGone
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
        body: dict[str, object] = {
            "model": self._model,
            "messages": [msgspec.to_builtins(message) for message in request.messages],
            **request.params,
            "rid": request.rid,
            "stream": False,
        }
        if request.tools:
            body["tools"] = request.tools
        if spec_details:
            body[spec_details] = True
        try:
            reply = await self._openai.post("/chat/completions", body=body, cast_to=object)
        except openai.APIConnectionError as error:
            raise ServerGone(f"connection lost: {error.__cause__ or error}") from error
        except openai.APIStatusError as error:
            sentence = f"HTTP {error.status_code}: {_message(error)}"
            if error.status_code in _ROW_IS_AT_FAULT:
                raise RowRefused(sentence) from error
            raise ServerBusy(sentence) from error
        except (openai.OpenAIError, ValueError) as error:
            raise ServerBusy(f"the reply is not a completion: {error}") from error
        return _answer(reply)

    async def close(self) -> None:
        """Close the connections."""
        await self._openai.close()


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
