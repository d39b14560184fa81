"""One row through one server: its turns in order, each sent with the answers before it."""

from __future__ import annotations

import time
from uuid import uuid4

from msgspec import Struct

from genmon.config.schema import SamplingConfig
from genmon.engine.hosts import ChatRequest, Host
from genmon.job.answers import classify
from genmon.job.row import Answer, Json, Message, Row
from genmon.state import AnswerClass

_SEED_STEP = 1009
"""Added to the seed at each new try, so that a bad answer is not simply drawn again. Any odd constant would do."""


class Generation(Struct, frozen=True, kw_only=True):
    """What a server made of a row; `answer_class` is the class of its last answer, the first one not complete."""

    conversation: tuple[Message, ...]
    answers: tuple[Answer, ...]
    answer_class: AnswerClass
    started_at: float
    latency_s: float

    @property
    def prompt_tokens(self) -> int | None:
        """Prompt tokens over all turns."""
        return _total([answer.prompt_tokens for answer in self.answers])

    @property
    def completion_tokens(self) -> int | None:
        """Completion tokens over all turns."""
        return _total([answer.completion_tokens for answer in self.answers])

    @property
    def reasoning_tokens(self) -> int | None:
        """Reasoning tokens over all turns."""
        return _total([answer.reasoning_tokens for answer in self.answers])

    @property
    def acceptance_length(self) -> float | None:
        """Mean over turns, where the server gives it."""
        known = [answer.acceptance_length for answer in self.answers if answer.acceptance_length]
        return sum(known) / len(known) if known else None


async def generate(host: Host, server: str, row: Row, sampling: SamplingConfig, attempt: int) -> Generation:
    """Generate all answers of a row, turn by turn; stops at the first answer that is not complete.

    Earlier answers are sent back without their reasoning, as the model's chat template expects of history.
    Raises what `Host.complete` raises.
    """
    params = request_params(row, sampling, attempt)
    thinking = sampling.thinking
    started_at, started = time.time(), time.monotonic()
    history: list[Message] = []
    conversation: list[Message] = []
    answers: list[Answer] = []
    answer_class = AnswerClass.EMPTY
    for turn in row.turns:
        history.extend(turn)
        conversation.extend(turn)
        request = ChatRequest(rid=uuid4().hex, messages=tuple(history), params=params, tools=row.tools)
        answer = await host.complete(server, request)
        answers.append(answer)
        answer_class = classify(answer, thinking=thinking)
        history.append(Message(role="assistant", content=answer.content, tool_calls=answer.tool_calls))
        conversation.append(
            Message(
                role="assistant",
                content=answer.content,
                reasoning_content=answer.reasoning or None,
                tool_calls=answer.tool_calls,
            )
        )
        if answer_class is not AnswerClass.COMPLETE:
            break
    return Generation(
        conversation=tuple(conversation),
        answers=tuple(answers),
        answer_class=answer_class,
        started_at=started_at,
        latency_s=time.monotonic() - started,
    )


def request_params(row: Row, sampling: SamplingConfig, attempt: int) -> dict[str, Json]:
    """The sampling part of the request body: the run file's, overruled by the row's own."""
    params: dict[str, Json] = {}
    for field in ("max_tokens", "temperature", "top_p", "top_k", "min_p"):
        value = getattr(sampling, field)
        if value is not None:
            params[field] = value
    if sampling.seed is not None:
        params["seed"] = sampling.seed + row.sample
    if sampling.thinking is not None:
        params["chat_template_kwargs"] = {"enable_thinking": sampling.thinking}
    if "max_completion_tokens" in row.params:
        params.pop("max_tokens", None)
    params.update(row.params)
    seed = params.get("seed")
    if isinstance(seed, int) and attempt > 1:
        params["seed"] = seed + (attempt - 1) * _SEED_STEP
    return params


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
