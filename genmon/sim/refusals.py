"""Why SGLang answers a chat request with 400, in its words."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from genmon.job.row import Json
from genmon.sim import replies
from genmon.sim.arguments import Arguments

_ROLES_OLD = ("system", "developer", "assistant", "tool", "function")
_ROLES_NEW = ("system", "assistant", "tool", "function", "developer", "latest_reminder", "root")


class Refusal(Struct, frozen=True):
    """A reply with status 400."""

    message: str
    kind: str = "BadRequestError"
    remembered: bool = False
    """Refused only after it had been registered: 0.5.11 forgets to take it out again, and then never drains."""

    @property
    def body(self) -> dict[str, Json]:
        """The JSON of the reply."""
        return replies.error(self.message, self.kind)


def bad_json() -> Refusal:
    """The body is no JSON object."""
    return _invalid("{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'input': {}}")


def prompt_tokens(messages: Json) -> int:
    """Tokens that the simulation counts a prompt as: a quarter of its characters as JSON."""
    return max(1, len(msgspec.json.encode(messages)) // 4)


def ceiling(body: dict[str, Json]) -> int | None:
    """The most tokens a request may generate; None when it does not say."""
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and value:
            return value
    return None


def refusal(body: dict[str, Json], arguments: Arguments, *, new: bool) -> Refusal | None:
    """Why this request is refused; None when it is served. An unknown model name is no reason."""
    return _shape(body, new=new) or _size(body, arguments, new=new)


def _shape(body: dict[str, Json], *, new: bool) -> Refusal | None:
    if "messages" not in body:
        return _invalid("{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}")
    messages = body["messages"]
    if not isinstance(messages, list):
        return _invalid("{'type': 'list_type', 'loc': ('body', 'messages'), 'msg': 'Input should be a valid list'}")
    for name in ("max_tokens", "max_completion_tokens"):
        if not isinstance(body.get(name), int | None):
            return _invalid(f"{{'type': 'int_type', 'loc': ('body', '{name}'), 'msg': 'Input should be an integer'}}")
    if not messages:
        return Refusal("Messages cannot be empty.")
    roles = _ROLES_NEW if new else _ROLES_OLD
    for number, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role.lower() not in (*roles, "user"):
            listed = ", ".join(f"'{name}'" for name in roles)
            if not new:
                listed = listed.replace(", 'function'", ", or 'function'")
            return _invalid(
                f"{{'type': 'value_error', 'loc': ('body', 'messages', {number}, 'role'), 'msg': \"Value error, 'role' "
                f"must be one of {listed} (case-insensitive).\", 'input': {role!r}}}"
            )
    return None


def _size(body: dict[str, Json], arguments: Arguments, *, new: bool) -> Refusal | None:
    context, most = arguments.context_length, ceiling(body)
    if arguments.context_asked and most is not None and most > context:
        return Refusal(
            f"max_completion_tokens is too large: {most}.This model supports at most {context} completion tokens."
        )
    prompt = prompt_tokens(body["messages"])
    if prompt >= context:
        return Refusal(
            f"The input ({prompt} tokens) is longer than the model's context length ({context} tokens).",
            remembered=True,
        )
    if most is not None and prompt + most > context:
        return Refusal(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {prompt + most} tokens: {prompt} tokens from the input messages and {most} tokens for the "
            "completion. Please reduce the number of tokens in the input messages or the completion to fit within "
            "the limit.",
            remembered=True,
        )
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        words = "a non-negative finite number" if new else "non-negative"
        return Refusal(f"temperature must be {words}, got {float(temperature)}.", remembered=True)
    if most is not None and most < 0:
        return Refusal(f"max_new_tokens must be at least 0, got {most}.", remembered=True)
    return None


def _invalid(what: str) -> Refusal:
    return Refusal(f"1 validation error:\n  {what}", "Bad Request")
