"""Prompts in: every shape and file this field uses, and what becomes of input that is broken."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import duckdb
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from genmon.config.schema import JobConfig
from genmon.errors import ConfigError
from genmon.job import prompts
from genmon.job.prompts import Made, Skipped, find_files, rows
from genmon.job.row import Json, Message, Row


def read(files: Path | list[Path], **job: Json) -> list[Made | Skipped]:
    return list(rows([files] if isinstance(files, Path) else files, JobConfig(prompts=[], output="", **job)))  # type: ignore[arg-type]


def one(tmp_path: Path, record: Json, **job: Json) -> Row:
    """The row of one record."""
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(record) + "\n")
    (made,) = read(path, **job)
    assert isinstance(made, Made), made
    (row,) = made.rows
    return row


def refused(tmp_path: Path, record: Json, **job: Json) -> str:
    """Why one record makes no row."""
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(record) + "\n")
    (skipped,) = read(path, **job)
    assert isinstance(skipped, Skipped), skipped
    assert (skipped.source, skipped.line) == ("one.jsonl", 1)
    return skipped.reason


def said(row: Row) -> list[list[tuple[str, Json]]]:
    """Role and content of each message before each answer."""
    return [[(message.role, message.content) for message in turn] for turn in row.turns]


USER, OLD = {"role": "user", "content": "Q?"}, {"role": "assistant", "content": "old"}
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("record", "turns"),
    [
        ({"prompt": "Q?"}, [[("user", "Q?")]]),
        ({"prompt": [USER]}, [[("user", "Q?")]]),
        ({"turns": ["A?", "B?"]}, [[("user", "A?")], [("user", "B?")]]),
        ({"question": "Q?", "answer": "42"}, [[("user", "Q?")]]),
        ({"messages": [SYSTEM, USER]}, [[("system", "Be brief."), ("user", "Q?")]]),
        ({"messages": [USER, OLD]}, [[("user", "Q?")]]),
        ({"messages": [USER, OLD, USER]}, [[("user", "Q?")], [("user", "Q?")]]),
        ({"messages": None, "prompt": "Q?"}, [[("user", "Q?")]]),
        ({"conversations": [{"from": "human", "value": "Q?"}, {"from": "gpt", "value": "old"}]}, [[("user", "Q?")]]),
        ({"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "Q?"}]},
         [[("system", "S"), ("user", "Q?")]]),
        ({"conversations": [{"from": "user", "value": "Q?"}, {"from": "chatgpt", "value": "old"}]},
         [[("user", "Q?")]]),
        ({"conversations": [USER, OLD]}, [[("user", "Q?")]]),
        ({"prompt": [{"role": "user", "content": [{"type": "text", "text": "Look"}]}]},
         [[("user", [{"type": "text", "text": "Look"}])]]),
    ],
)  # fmt: skip
def test_the_shapes_that_are_found(tmp_path: Path, record: Json, turns: list[list[tuple[str, str]]]) -> None:
    assert said(one(tmp_path, record)) == turns


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([1, 2], "not a JSON object"),
        ({"text": "Q?"}, "no messages, conversations, prompt, turns or question"),
        ({"question": "Who?", "context": "A long passage."}, "question stands beside context"),
        ({"prompt": " \n"}, "prompt is empty"),
        ({"prompt": 7}, "prompt is not a list of messages"),
        ({"turns": ["A?", ""]}, "turns has an empty turn"),
        ({"messages": []}, "messages is not a list of messages"),
        ({"messages": [OLD]}, "assistant message with no user message before"),
        ({"messages": [SYSTEM]}, "does not end in a user message"),
        ({"messages": [USER, SYSTEM]}, "a system message must come first"),
        ({"messages": [{"role": "robot", "content": "Q?"}]}, "role is 'robot'"),
        ({"messages": [{"role": "user", "content": ""}]}, r"messages\[0\] is empty"),
        ({"messages": [{"content": "Q?"}]}, r"messages\[0\].*role"),
        ({"messages": ["Q?", USER]}, r"messages\[0\] is not an object"),
        ({"conversations": [{"from": "bird", "value": "Q?"}]}, "from is 'bird'"),
        ({"prompt": "Q?", "tools": "{"}, "tools is not JSON"),
        ({"prompt": "Q?", "tools": 3}, "tools is not a list"),
        ({"prompt": "Q?", "id": 1.5}, "id must be text or a whole number"),
        ({"custom_id": "a", "body": {"messages": []}}, "body.messages is not a list of messages"),
    ],
)
def test_a_record_that_makes_no_row_says_why(tmp_path: Path, record: Json, reason: str) -> None:
    assert re.search(reason, refused(tmp_path, record))


def test_a_named_field_wins_and_may_hold_any_shape(tmp_path: Path) -> None:
    assert said(one(tmp_path, {"prompt": "no", "q": "Q?"}, field="q")) == [[("user", "Q?")]]
    assert said(one(tmp_path, {"q": ["A?", "B?"]}, field="q")) == [[("user", "A?")], [("user", "B?")]]
    assert said(one(tmp_path, {"q": [SYSTEM, USER]}, field="q")) == [[("system", "Be brief."), ("user", "Q?")]]
    assert said(one(tmp_path, {"question": "Q?", "context": "C"}, field="question")) == [[("user", "Q?")]]
    assert refused(tmp_path, {"prompt": "Q?"}, field="q") == "no field q"


def test_tool_calls_and_their_results_stay_as_context(tmp_path: Path) -> None:
    call: Json = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    tools: Json = [{"type": "function", "function": {"name": "add"}}]
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": call},
        {"role": "tool", "content": "4", "tool_call_id": "c1"},
        OLD,
        USER,
    ]
    for given_tools in (tools, json.dumps(tools)):
        row = one(tmp_path, {"messages": messages, "tools": given_tools})
        assert row.tools == tools
        assert [[message.role for message in turn] for turn in row.turns] == [["user", "assistant", "tool"], ["user"]]
        assert row.turns[0][1] == Message(role="assistant", tool_calls=call)  # type: ignore[arg-type]


def test_a_batch_line_is_sent_as_it_is(tmp_path: Path) -> None:
    body = {"model": "other", "messages": [SYSTEM, USER, OLD, USER], "max_tokens": 7, "regex": "[a-z]+", "n": 1}
    row = one(tmp_path, {"custom_id": "b1", "method": "POST", "url": "/v1/chat/completions", "body": body})
    assert row.id == "b1"
    assert [[message.role for message in turn] for turn in row.turns] == [["system", "user", "assistant", "user"]]
    assert row.params == {"max_tokens": 7, "regex": "[a-z]+"}


def test_a_record_brings_its_own_sampling(tmp_path: Path) -> None:
    record = {"prompt": "Q?", "max_tokens": 5, "temperature": None, "sampling_params": {"top_p": 0.5, "max_tokens": 9}}
    assert one(tmp_path, {**record, "colour": "red"}).params == {"top_p": 0.5, "max_tokens": 5}


def test_samples_are_rows_of_one_record(tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    path.write_text('{"id": "a", "prompt": "A?"}\n{"id": 2, "prompt": "B?"}\n')
    made = read(path, samples=2)
    assert [
        (row.position, row.id, row.sample) for each in made if isinstance(each, Made) for row in each.rows
    ] == [(0, "a#s0", 0), (1, "a#s1", 1), (2, "2#s0", 0), (3, "2#s1", 1)]  # fmt: skip


def test_ids_come_from_the_record_or_the_field_that_is_named(tmp_path: Path) -> None:
    assert one(tmp_path, {"id": 12, "prompt": "Q?"}).id == "12"
    assert one(tmp_path, {"custom_id": "c", "prompt": "Q?"}).id == "c"
    assert one(tmp_path, {"id": "a", "task": "t", "prompt": "Q?"}, id_field="task").id == "t"
    assert refused(tmp_path, {"id": "a", "prompt": "Q?"}, id_field="task") == "no task to use as id"
    assert refused(tmp_path, {"task": "", "prompt": "Q?"}, id_field="task") == "no task to use as id"


@settings(max_examples=40, deadline=None)
@given(
    extra=st.dictionaries(st.text(max_size=3), st.none() | st.integers(-9, 9) | st.text(max_size=3), max_size=3),
    missing=st.sampled_from([{}, {"id": None}, {"id": ""}]),
)
def test_an_id_by_hash_depends_on_the_content_alone(
    tmp_path_factory: pytest.TempPathFactory, extra: dict[str, Json], missing: dict[str, Json]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    record = {**{key: value for key, value in extra.items() if key not in ("id", "tools")}, **missing, "prompt": "Q?"}
    path = folder / "hash.jsonl"
    turned = dict(reversed(record.items()))
    written = [json.dumps(record), json.dumps(turned, indent=1).replace("\n", " "), json.dumps({**record, "more": 1})]
    path.write_text("\n".join(written))
    first, same, other = (made.rows[0].id for made in read(path) if isinstance(made, Made))
    assert first == same != other
    assert len(first) == 32


RECORDS = [{"id": f"r{n}", "prompt": f"Question {n}, with a few words to fill the line?"} for n in range(400)]
CONTENT = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()


def write_as(path: Path, content: bytes = CONTENT) -> Path:
    """The records in a file of the kind that its name says."""
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    elif path.suffix == ".zst":
        path.write_bytes(zstandard.compress(content))
    elif path.suffix == ".parquet":
        source = path.with_suffix(".source.jsonl")
        source.write_bytes(content)
        duckdb.execute(f"COPY (SELECT * FROM read_json('{source}', format='nd')) TO '{path}' (FORMAT parquet)")
    else:
        path.write_bytes(content)
    return path


KINDS = ["p.jsonl", "p.ndjson", "p.jsonl.gz", "p.jsonl.zst", "p.parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    made = read(write_as(tmp_path / kind))
    assert [(each.number, each.rows[0].id) for each in made if isinstance(each, Made)] == [
        (n, f"r{n}") for n in range(400)
    ]
    assert said(made[7].rows[0]) == [[("user", RECORDS[7]["prompt"])]]  # type: ignore[union-attr]


def test_nested_messages_come_out_of_parquet(tmp_path: Path) -> None:
    content = json.dumps({"id": 1, "messages": [SYSTEM, USER], "top_k": 5}).encode()
    (made,) = read(write_as(tmp_path / "p.parquet", content))
    assert isinstance(made, Made)
    assert said(made.rows[0]) == [[("system", "Be brief."), ("user", "Q?")]]
    assert (made.rows[0].id, made.rows[0].params) == ("1", {"top_k": 5})


def test_archives_of_several_members_are_read_to_their_end(tmp_path: Path) -> None:
    half = len(CONTENT) // 2
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(CONTENT[:half]) + gzip.compress(CONTENT[half:]))
    (tmp_path / "p.jsonl.zst").write_bytes(zstandard.compress(CONTENT[:half]) + zstandard.compress(CONTENT[half:]))
    for kind in ("p.jsonl.gz", "p.jsonl.zst"):
        assert len(read(tmp_path / kind)) == 400


@pytest.mark.parametrize("kind", ["p.jsonl.gz", "p.jsonl.zst", "p.parquet"])
@pytest.mark.parametrize("harm", ["torn", "other"])
def test_a_broken_archive_is_told_and_the_next_file_is_read(tmp_path: Path, kind: str, harm: str) -> None:
    path = write_as(tmp_path / kind)
    path.write_bytes(path.read_bytes()[:-40] if harm == "torn" else b"This is no archive at all.")
    after = tmp_path / "after.jsonl"
    after.write_text('{"id": "last", "prompt": "Q?"}\n')
    *before, told, last = read([path, after])
    assert isinstance(told, Skipped)
    assert told.source == kind
    assert told.reason.startswith("the file cannot be read further: ")
    assert isinstance(last, Made)
    assert last.rows[0].id == "last"
    assert [each.number for each in (*before, told, last)] == list(range(len(before) + 2))


def test_bad_lines_stop_nothing_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"id": "a", "prompt": "A?"}\r\n\n   \n{"id": "b", "prompt": "B\xff?"}\n{"id": "c", "pro\n'
        b'\x00\x00\x00\n{"id": "d", "prompt": "\\ud83d?"}\n[]\n{"id": "e", "prompt": "E?"}'
    )
    made = read(path)
    assert [(each.number, each.rows[0].id) for each in made if isinstance(each, Made)] == [(0, "a"), (6, "e")]
    bad = [(each.number, each.line, each.reason.split(":")[0]) for each in made if isinstance(each, Skipped)]
    assert bad[0] in [(1, 4, "not JSON"), (1, 4, "not UTF-8")]  # as the version of msgspec has it
    assert bad[1:] == [
        (2, 5, "not JSON"),
        (3, 6, "not JSON"),
        (4, 7, "not JSON"),
        (5, 8, "not a JSON object"),
    ]


def test_a_line_past_all_reason_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "_LINE_MAX_B", 1 << 20)
    path = tmp_path / "p.jsonl"
    long = json.dumps({"id": "long", "prompt": "x" * (5 << 19)})
    path.write_text(f'{{"id": "a", "prompt": "A?"}}\n{long}\n{{"id": "b", "prompt": "B?"}}\n{long}')
    first, told, second, again = read(path)
    assert isinstance(first, Made)
    assert isinstance(second, Made)
    assert (first.rows[0].id, second.rows[0].id) == ("a", "b")
    assert [(each.line, each.reason) for each in (told, again) if isinstance(each, Skipped)] == [
        (2, "longer than 1 MiB"),
        (4, "longer than 1 MiB"),
    ]


def test_a_limit_takes_the_first_records_of_all_files(tmp_path: Path) -> None:
    files = [write_as(tmp_path / "a.jsonl"), write_as(tmp_path / "b.jsonl")]
    assert [each.number for each in read(files, limit=401)] == list(range(401))


def test_files_are_found_by_globs_each_once_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.jsonl.zst", "notes.txt"):
        (tmp_path / name).write_text("")
    found = find_files([str(tmp_path / "b.jsonl"), str(tmp_path / "*.jsonl*")])
    assert [path.name for path in found] == ["b.jsonl", "a.jsonl", "c.jsonl.zst"]
    with pytest.raises(ConfigError, match=r"d\.jsonl matches no file"):
        find_files([str(tmp_path / "d.jsonl")])
    with pytest.raises(ConfigError, match=r"notes\.txt has an ending genmon cannot read; it reads \.jsonl, "):
        find_files([str(tmp_path / "*")])
