"""One row of the job, from prompt to finished completion."""

from __future__ import annotations

from msgspec import Struct

from genmon.state import AnswerClass

Json = object
"""Any JSON value, as it came: who looks inside narrows it. (msgspec reads no recursive alias.)"""


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One chat message, in OpenAI's shape."""

    role: str
    content: str | list[Json] | None = None
    reasoning_content: str | None = None
    name: str | None = None
    tool_calls: list[Json] | None = None
    tool_call_id: str | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One completion to generate.

    `position` numbers the job's rows: (record number in the input) × samples + sample, so it is stable
    across runs. `turns` holds, for each answer to generate, the messages that come before it since the last
    answer: ((system, user), (user,)) has two answers. `params` are the row's own sampling parameters, by
    their names in the request body; they win over the run file's.
    """

    position: int
    id: str
    turns: tuple[tuple[Message, ...], ...]
    params: dict[str, Json] = {}
    tools: list[Json] | None = None
    sample: int = 0


class Answer(Struct, frozen=True, kw_only=True):
    """One reply of a server: one assistant turn."""

    content: str
    reasoning: str | None
    finish_reason: str
    tool_calls: list[Json] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    acceptance_length: float | None = None
    """Tokens per verify step of this request, where the server gives it."""


class Completion(Struct, frozen=True, kw_only=True):
    """A finished row, ready for its shard: its whole conversation, and what the sidecar keeps of it."""

    row: Row
    conversation: tuple[Message, ...]
    answer_class: AnswerClass
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    acceptance_length: float | None
    attempts: int
    server: str
    launch: str
    """Which launch of the server: `server#number`; its flags are in the job's launches.jsonl."""
    started_at: float
    latency_s: float


class Failure(Struct, frozen=True, kw_only=True):
    """A row given up: the reason, and its last answer if there was one."""

    row: Row
    reason: str
    attempts: int
    conversation: tuple[Message, ...] = ()
    answer_class: AnswerClass | None = None
