"""One input record, in any of the shapes this field uses, to the turns of a row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from genmon.config.schema import JobConfig
from genmon.job.row import Json, Message, Row

PARAMS = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "stop",
    }
)
"""Top-level keys of a record that are sampling parameters of that row."""
_PARAM_OBJECTS = ("sampling_params", "generation_params")
_SHAREGPT_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "user": "user",
    "assistant": "assistant",
    "system": "system",
}
_FOUND = ("messages", "conversations", "prompt", "turns", "question")
"""Fields that hold the prompt when the run file names none, each record by itself: the first that it has."""
_CONTEXT = ("context", "passage", "choices", "options", "input")
"""Fields of question sets without which the question alone makes no sense."""
_BODY_OWNED = frozenset({"model", "messages", "stream", "stream_options", "n", "tools", "rid"})


class BadRecord(ValueError):
    """A record that makes no row; the message is the reason."""


def rows_of(record: object, first_position: int, config: JobConfig) -> list[Row]:
    """The rows of one record: one for each sample.

    Args:
        record: the parsed record.
        first_position: position of its first sample.
        config: what the run file says of fields and samples.

    Raises:
        BadRecord: it makes no row, and why.
    """
    if not isinstance(record, dict):
        raise BadRecord("not a JSON object")
    if isinstance(record.get("body"), dict) and ("custom_id" in record or "url" in record):
        turns, params, tools = _batch(record["body"])
    else:
        turns, params, tools = _turns(record, config.field), _params(record), _tools(record.get("tools"))
    row_id = _id(record, config.id_field)
    return [
        Row(
            position=first_position + sample,
            id=row_id if config.samples == 1 else f"{row_id}#s{sample}",
            turns=turns,
            params=params,
            tools=tools,
            sample=sample,
        )
        for sample in range(config.samples)
    ]


def _id(record: Mapping[str, Json], id_field: str | None) -> str:
    """The id a record brings, or a hash of it in which key order and white space make no difference."""
    for field in (id_field,) if id_field else ("id", "custom_id"):
        value = record.get(field)
        if isinstance(value, bool) or value is None or value == "":
            if id_field:
                raise BadRecord(f"no {id_field} to use as id")
            continue
        if isinstance(value, str | int):
            return str(value)
        raise BadRecord(f"{field} must be text or a whole number")
    return hashlib.blake2b(msgspec.json.encode(record, order="deterministic"), digest_size=16).hexdigest()


def _batch(
    body: Mapping[str, Json],
) -> tuple[tuple[tuple[Message, ...], ...], dict[str, Json], list[Json] | None]:
    """An OpenAI Batch body: its messages exactly as given, one answer; what else it holds is sent along."""
    messages = _messages(body.get("messages"), "body.messages")
    if not messages:
        raise BadRecord("body.messages is empty")
    params = {key: value for key, value in body.items() if key not in _BODY_OWNED}
    return (tuple(messages),), params, _tools(body.get("tools"))


def _turns(record: Mapping[str, Json], field: str | None) -> tuple[tuple[Message, ...], ...]:
    if field is not None:
        if field not in record:
            raise BadRecord(f"no field {field}")
        return _from_value(record[field], field)
    for name in _FOUND:
        if record.get(name) is None:
            continue
        beside = next((each for each in _CONTEXT if record.get(each)), None) if name == "question" else None
        if beside is not None:
            raise BadRecord(f"question stands beside {beside}, which would be lost (name the field with job.field)")
        return _from_value(record[name], name)
    raise BadRecord(f"no {', '.join(_FOUND[:-1])} or {_FOUND[-1]} (name the field with job.field)")


def _from_value(value: Json, name: str) -> tuple[tuple[Message, ...], ...]:
    if isinstance(value, str):
        if not value.strip():
            raise BadRecord(f"{name} is empty")
        return ((Message(role="user", content=value),),)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        if not all(str(item).strip() for item in value):
            raise BadRecord(f"{name} has an empty turn")
        return tuple((Message(role="user", content=str(item)),) for item in value)
    return _split(_messages(value, name), name)


def _messages(value: Json, name: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise BadRecord(f"{name} is not a list of messages")
    return [_message(item, f"{name}[{number}]") for number, item in enumerate(value)]


def _message(item: Json, where: str) -> Message:
    if not isinstance(item, dict):
        raise BadRecord(f"{where} is not an object")
    if "from" in item and "role" not in item:
        role = _SHAREGPT_ROLES.get(str(item["from"]))
        if role is None:
            raise BadRecord(f"{where}.from is {item['from']!r}, not human, gpt or system")
        item = {"role": role, "content": item.get("value")}
    try:
        message = msgspec.convert(item, Message)
    except msgspec.ValidationError as error:
        raise BadRecord(f"{where}: {error}") from error
    if message.role not in ("system", "developer", "user", "assistant", "tool"):
        raise BadRecord(f"{where}.role is {message.role!r}")
    if message.role != "assistant" and not _has_content(message):
        raise BadRecord(f"{where} is empty")
    return message


def _has_content(message: Message) -> bool:
    return bool(message.content.strip() if isinstance(message.content, str) else message.content)


def _split(messages: list[Message], name: str) -> tuple[tuple[Message, ...], ...]:
    """Cut a conversation at the assistant turns to generate anew; tool calls and their results stay as context."""
    turns: list[tuple[Message, ...]] = []
    pending: list[Message] = []
    for number, message in enumerate(messages):
        if message.role in ("system", "developer") and number:
            raise BadRecord(f"{name}[{number}]: a system message must come first")
        following = messages[number + 1] if number + 1 < len(messages) else None
        kept = message.tool_calls or (following is not None and following.role == "tool")
        if message.role != "assistant" or kept:
            pending.append(message)
            continue
        if not pending or pending[-1].role not in ("user", "tool"):
            raise BadRecord(f"{name}[{number}]: an assistant message with no user message before it")
        turns.append(tuple(pending))
        pending = []
    if pending:
        if pending[-1].role not in ("user", "tool"):
            raise BadRecord(f"{name} does not end in a user message")
        turns.append(tuple(pending))
    if not any(message.role == "user" for turn in turns for message in turn):
        raise BadRecord(f"{name} has no user message")
    return tuple(turns)


def _params(record: Mapping[str, Json]) -> dict[str, Json]:
    params: dict[str, Json] = {}
    for name in _PARAM_OBJECTS:
        value = record.get(name)
        if isinstance(value, dict):
            params.update(value)
    params.update({key: value for key, value in record.items() if key in PARAMS and value is not None})
    return params


def _tools(value: Json) -> list[Json] | None:
    if isinstance(value, str) and value.strip():
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise BadRecord("tools is not JSON") from error
    if value in (None, "", []):
        return None
    if not isinstance(value, list):
        raise BadRecord("tools is not a list")
    return value
