"""What genmon relies on in SGLang's protocol, asked of recorded servers, of the simulated one, and of a real one.

The recorded ones are in tests/captures. GENMON_SGLANG_URL (http://host:port) names a real one.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from genmon.config.schema import SimulationConfig
from genmon.fleet.logtail import End, diagnose
from genmon.fleet.metrics import parse
from genmon.job.row import Json
from tests.simulated import MTP, Reply, SimulatedProcess, ask, chat, simulated, until

CAPTURES = Path(__file__).parent / "captures"
URL = os.environ.get("GENMON_SGLANG_URL")
TURN: list[Json] = [{"role": "user", "content": "What is the capital of France, and why?"}]
NOTHINK: dict[str, Json] = {"chat_template_kwargs": {"enable_thinking": False}}


def turn(**more: Json) -> dict[str, Json]:
    return {"model": "tiny", "messages": TURN, "max_tokens": 16, **more}


def requests(context: int) -> dict[str, tuple[str, str, Json]]:
    """What was asked for each recorded reply: method, path, body."""
    chats: dict[str, Json] = {
        "chat_nonstream": turn(),
        "chat_nonstream_nothink": turn(**NOTHINK),
        "chat_return_extras": turn(rid="my-rid-1", return_meta_info=False, max_tokens=4),
        "chat_stream_usage": turn(stream=True, stream_options={"include_usage": True}),
        "err_bad_model": turn(model="other"),
        "err_bad_json": b'{"model": "tiny", "messages": [',
        "err_no_messages": {"model": "tiny"},
        "err_empty_messages": turn(messages=[]),
        "err_bad_role": turn(messages=[{"role": "wizard", "content": "hi"}]),
        "err_negative_max_tokens": turn(max_tokens=-1),
        "err_temperature_negative": turn(temperature=-1),
        "err_prompt_too_long": turn(messages=[{"role": "user", "content": "word " * context}]),
        "err_prompt_too_long_stream": turn(messages=[{"role": "user", "content": "word " * context}], stream=True),
        "err_max_tokens_over_context": turn(max_tokens=context - 2),
    }
    gets = ("health", "model_info", "server_info", "v1_models", "v1_loads", "get_load")
    asked: dict[str, tuple[str, str, Json]] = {
        name: ("POST", "/v1/chat/completions", body) for name, body in chats.items()
    }
    asked |= {name: ("GET", "/" + name.replace("v1_", "v1/"), None) for name in gets}
    return asked | {
        "err_method_get_on_chat": ("GET", "/v1/chat/completions", None),
        "not_found": ("GET", "/nope", None),
        "flush_cache": ("POST", "/flush_cache", None),
        "abort_request_unknown": ("POST", "/abort_request", {"rid": "nobody"}),
        "metrics_busy": ("GET", "/metrics", None),
    }


class Source:
    """A server, live or recorded, asked by the names of the captures. A live one is asked for all at once."""

    def __init__(self, version: str, folder: Path | None = None, url: str | None = None) -> None:
        self.new, self.version = version != "0.5.11", version
        self.url, self._folder = url, folder
        self.replies: dict[str, Reply] = {}
        self.took_s: dict[str, float] = {}
        if url is not None:
            asked = requests(context_of(url))
            alone = [name for name in ("flush_cache", "v1_loads", "metrics_busy") if asked.get(name)]
            with ThreadPoolExecutor(len(asked)) as pool:
                list(pool.map(lambda name: self._ask(url, name, asked[name]), set(asked) - set(alone)))
            for name in alone:
                self._ask(url, name, asked[name])

    def __call__(self, name: str) -> Reply:
        return recorded(self._folder / f"{name}.http") if self._folder else self.replies[name]

    def _ask(self, url: str, name: str, request: tuple[str, str, Json]) -> None:
        began = time.monotonic()
        self.replies[name] = ask(url, *request)
        self.took_s[name] = time.monotonic() - began


def context_of(url: str) -> int:
    models = cast("list[dict[str, int]]", ask(url, "GET", "/v1/models").json["data"])
    return models[0]["max_model_len"]


def recorded(path: Path) -> Reply:
    """A capture."""
    head, _, body = path.read_bytes().partition(b"\n\n")
    status, *lines = head.decode().splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    return Reply(int(status.split()[1]), headers, body)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SimulatedProcess]]:
    folder = tmp_path_factory.mktemp("servers")
    old, new = SimulationConfig(startup_s=0.1, version="0.5.11"), SimulationConfig(startup_s=0.1, version="0.5.23")
    with (
        simulated(folder, old, wait=False) as first,
        simulated(folder, new, wait=False) as second,
        simulated(folder, old, "--disable-radix-cache", *MTP, wait=False) as third,
    ):
        started = {"0.5.11": first, "0.5.23": second, "mtp": third}
        for server in started.values():
            server.wait_ready()
        yield started


@pytest.fixture(scope="module")
def sources(servers: dict[str, SimulatedProcess]) -> dict[str, Source]:
    made = {f"recorded {version}": Source(version, folder=CAPTURES / version) for version in ("0.5.11", "0.5.23")}
    with ThreadPoolExecutor() as pool:
        busy = [
            pool.submit(chat, server.url, max_tokens=130 if name == "mtp" else 60, ignore_eos=True)
            for name, server in servers.items()  # more than 40 steps
        ]
        live = {
            f"simulated {version}": pool.submit(Source, version, url=servers[version].url)
            for version in ("0.5.11", "0.5.23")
        }
        assert [request.result().status for request in busy] == [200, 200, 200]
        return made | {name: source.result() for name, source in live.items()}


@pytest.fixture(
    params=[
        "recorded 0.5.11",
        "recorded 0.5.23",
        "simulated 0.5.11",
        "simulated 0.5.23",
        pytest.param(
            "real",
            marks=[
                pytest.mark.sglang,
                pytest.mark.skipif(not URL, reason="GENMON_SGLANG_URL names no running SGLang server"),
            ],
        ),
    ]
)
def source(request: pytest.FixtureRequest, sources: dict[str, Source]) -> Source:
    name = str(request.param)
    if name == "real" and name not in sources:
        assert URL
        sources[name] = Source(str(ask(URL, "GET", "/server_info").json["version"]), url=URL)
    return sources[name]


def choice(reply: Reply) -> dict[str, Json]:
    assert reply.status == 200
    choices = cast("list[dict[str, Json]]", reply.json["choices"])
    assert len(choices) == 1
    return choices[0]


def usage(reply: Reply) -> dict[str, int]:
    return cast("dict[str, int]", reply.json["usage"])


def test_a_thought_that_is_cut_is_all_in_reasoning_content(source: Source) -> None:
    reply = source("chat_nonstream")
    first = choice(reply)
    message = cast("dict[str, Json]", first["message"])
    assert message["role"] == "assistant"
    assert message["content"] == ("" if source.new else None)
    assert isinstance(message["reasoning_content"], str)
    assert message["reasoning_content"]
    assert ("tool_calls" in message) is not source.new
    assert (first["finish_reason"], first["matched_stop"]) == ("length", None)
    assert reply.json["object"] == "chat.completion"
    assert reply.json["model"] == "tiny"
    counts = usage(reply)
    assert counts["completion_tokens"] == 16
    assert counts["total_tokens"] == counts["prompt_tokens"] + 16
    assert counts["reasoning_tokens"] == 16
    assert ("completion_tokens_details" in counts) is source.new


def test_without_thinking_the_answer_is_content(source: Source) -> None:
    reply = source("chat_nonstream_nothink")
    message = cast("dict[str, Json]", choice(reply)["message"])
    assert isinstance(message["content"], str)
    assert message["content"]
    assert message["reasoning_content"] is None
    assert usage(reply)["reasoning_tokens"] == 0


def test_the_request_id_is_what_was_asked_for(source: Source) -> None:
    assert source("chat_return_extras").json["id"] == "my-rid-1"


def test_an_unknown_model_name_is_no_error(source: Source) -> None:
    reply = source("err_bad_model")
    assert (reply.status, reply.json["model"]) == (200, "other")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("err_bad_json", "Bad Request", r"1 validation error:\n  \{'type': 'json_invalid'"),
        (
            "err_no_messages",
            "Bad Request",
            r"1 validation error:\n  \{'type': 'missing', 'loc': \('body', 'messages'\)",
        ),
        ("err_bad_role", "Bad Request", r"(?s)validation error.*'role' must be one of 'system'"),
        ("err_empty_messages", "BadRequestError", r"Messages cannot be empty\.$"),
        ("err_negative_max_tokens", "BadRequestError", r"max_new_tokens must be at least 0, got -1\.$"),
        ("err_temperature_negative", "BadRequestError", r"temperature must be .*non-negative.*, got -1\.0\.$"),
        (
            "err_prompt_too_long",
            "BadRequestError",
            r"The input \(\d+ tokens\) is longer than the model's context length \(\d+ tokens\)\.$",
        ),
        ("err_prompt_too_long_stream", "BadRequestError", r"The input \(\d+ tokens\) is longer"),
        (
            "err_max_tokens_over_context",
            "BadRequestError",
            r"Requested token count exceeds the model's maximum context length of \d+ tokens\. You requested a "
            r"total of \d+ tokens: \d+ tokens from the input messages and \d+ tokens for the completion\.",
        ),
    ],
)
def test_a_row_that_can_never_work_is_answered_400(source: Source, name: str, kind: str, words: str) -> None:
    reply = source(name)
    body = reply.json
    assert reply.status == 400
    assert re.search(words, str(body.pop("message")))
    assert body == {"object": "error", "type": kind, "param": None, "code": 400}


def test_a_ceiling_above_the_context_length_given_is_refused_in_other_words(tmp_path: Path) -> None:
    words = r"max_completion_tokens is too large: 99999\.This model supports at most 16384 completion tokens\."
    real = recorded(CAPTURES / "h200-0.5.11-mtp-on" / "err_max_tokens_too_large.http")
    with simulated(tmp_path, SimulationConfig(startup_s=0.1), "--context-length", "16384") as server:
        for reply in (real, chat(server.url, max_tokens=99999)):
            assert reply.status == 400
            assert re.match(words, str(reply.json["message"]))


def test_other_methods_and_paths(source: Source) -> None:
    reply = source("err_method_get_on_chat")
    assert (reply.status, reply.json) == (405, {"detail": "Method Not Allowed"})
    assert reply.headers["allow"] == "POST"
    reply = source("not_found")
    assert (reply.status, reply.json) == (404, {"detail": "Not Found"})


def test_a_stream_ends_with_its_usage(source: Source) -> None:
    reply = source("chat_stream_usage")
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in reply.body.decode().splitlines() if line]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    last = chunks.pop()
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 16
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert (deltas[0]["role"], deltas[0]["content"]) == ("assistant", "")
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas)
    assert not any(delta.get("content") for delta in deltas)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]


def test_server_info_tells_version_and_effective_cap(source: Source) -> None:
    info = source("server_info").json
    assert info["version"] == source.version
    assert info["status"] == "ready"
    assert "api_key" in info, "it tells the key in clear text: nobody may keep this reply whole"
    assert info["speculative_algorithm"] is None
    state = cast("list[dict[str, Json]]", info["internal_states"])[0]
    cap = state["effective_max_running_requests_per_dp"]
    assert isinstance(cap, int)
    assert cap > 0
    assert "avg_spec_accept_length" not in state
    memory = cast("dict[str, Json]", state["memory_usage"])
    assert isinstance(memory["graph"], dict) is source.new


def test_models_and_model_info(source: Source) -> None:
    models = cast("list[dict[str, Json]]", source("v1_models").json["data"])
    assert [model["id"] for model in models] == ["tiny"]
    assert isinstance(models[0]["max_model_len"], int)
    info = source("model_info").json
    assert {"model_path", "model_type", "architectures", "weight_version"} <= set(info)
    assert ("served_model_name" in info) is source.new


def test_loads_tell_running_and_waiting(source: Source) -> None:
    reply = source("v1_loads").json
    assert reply["version"] == source.version
    assert ("aggregate" in reply, "dp_rank_count" in reply) == (not source.new, not source.new)
    load = cast("list[dict[str, Json]]", reply["loads"])[0]
    assert load["num_running_reqs"] == load["num_waiting_reqs"] == 0
    assert isinstance(load["max_running_requests"], int)
    assert "speculative" not in load
    assert ("num_total_reqs" in load) is not source.new
    assert source("get_load").status == (404 if source.new else 200)


def test_metrics_have_the_live_counter_and_the_gauges(source: Source) -> None:
    reply = source("metrics_busy")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    page = reply.body.decode()
    metrics = parse(page)
    assert metrics.decode_tokens is not None
    assert metrics.decode_tokens > 0
    assert None not in (metrics.running, metrics.queued, metrics.token_usage, metrics.full_token_usage)
    assert metrics.acceptance_length == 0.0, "0, not missing, when speculation is off"
    for mode in ("decode", "prefill_compute"):
        assert re.search(rf'^sglang:realtime_tokens_total{{engine_type="unified",mode="{mode}",model_name=', page, re.M)
    assert re.search(r'^sglang:num_running_reqs{.*tp_rank="0"} ', page, re.M)
    assert re.search(r'^sglang:num_retracted_reqs{.*pid="\d+"', page, re.M)
    finished = re.findall(r"^sglang:generation_tokens_total{(.*)} ", page, re.M)
    assert finished
    assert all(("is_streaming=" in labels) is source.new for labels in finished)
    assert re.search(r'^sglang:e2e_request_latency_seconds_bucket{.*le="\+Inf"', page, re.M)
    assert "max_running_requests" not in page


def test_health_is_an_empty_200(source: Source) -> None:
    reply = source("health")
    assert (reply.status, reply.body) == (200, b"")
    assert source.took_s.get("health", 1.0) >= 1.0, "it generates a token each time"


def test_abort_and_flush_answer_200(source: Source) -> None:
    reply = source("abort_request_unknown")
    assert (reply.status, reply.body) == (200, b"")
    reply = source("flush_cache")
    assert reply.status == 200
    assert reply.body.startswith(b"Cache flushed.")


@pytest.fixture(params=["recorded", "simulated"])
def mtp(request: pytest.FixtureRequest, servers: dict[str, SimulatedProcess], sources: dict[str, Source]) -> Source:
    """A 0.5.11 with speculation on, after some work."""
    if request.param == "recorded":
        return Source("0.5.11", folder=CAPTURES / "h200-0.5.11-mtp-on")
    server = servers["mtp"]
    until(lambda: server.loads()["num_running_reqs"] == 0, "idle")
    live = Source("0.5.11")
    for name, path in (
        ("server_info_busy", "/server_info"),
        ("v1_loads_busy", "/v1/loads"),
        ("metrics_after", "/metrics"),
    ):
        live.replies[name] = ask(server.url, "GET", path)
    live.replies["metrics_busy"] = live.replies["metrics_after"]
    return live


def test_speculation_is_told_in_three_places(mtp: Source) -> None:
    info = mtp("server_info_busy").json
    assert info["speculative_algorithm"] == "EAGLE", "what SGLang calls NEXTN"
    state = cast("list[dict[str, float]]", info["internal_states"])[0]
    told = cast("list[dict[str, dict[str, float]]]", mtp("v1_loads_busy").json["loads"])[0]["speculative"]
    acceptance = parse(mtp("metrics_busy").body.decode()).acceptance_length
    assert acceptance is not None
    for length in (state["avg_spec_accept_length"], told["accept_length"], acceptance):
        assert 2.5 < length < 3.1
    assert told["accept_rate"] == pytest.approx((acceptance - 1) / 3)


def test_gauges_of_0_5_11_keep_the_last_batch_when_it_is_gone(mtp: Source) -> None:
    page = mtp("metrics_after").body.decode()
    metrics = parse(page)
    assert metrics.running is not None
    assert metrics.running > 0
    assert float(re.findall(r"^sglang:gen_throughput{.*} (.*)$", page, re.M)[0]) > 0


STAMP = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "
LINES = {
    "listening": r"INFO:     Uvicorn running on http://127\.0\.0\.1:\d+ \(Press CTRL\+C to quit\)$",
    "weights": r"Load weight end\. elapsed=[\d.]+ s, type=\w+, avail mem=[\d.]+ GB, mem usage=[\d.]+ GB\.$",
    "capacity": r"max_total_num_tokens=\d+, chunked_prefill_size=\d+, max_prefill_tokens=\d+, "
    r"max_running_requests=\d+, context_len=\d+, available_[gc]pu_mem=[\d.]+ GB$",
    "ready": r"The server is fired up and ready to roll!$",
    "access": r'INFO:     127\.0\.0\.1:\d+ - "POST /v1/chat/completions HTTP/1\.1" 200 OK$',
    "prefill": r"Prefill batch, #new-seq: \d+, #new-token: \d+, #cached-token: \d+, .*#running-req: \d+, "
    r"#queue-req: \d+, #pending-token: \d+, (?:cuda|cpu) graph: \w+, input throughput \(token/s\): [\d.]+$",
    "decode": r"Decode batch, #running-req: \d+, #(full )?token: \d+, .*(?:cuda|cpu) graph: \w+, "
    r"gen throughput \(token/s\): [\d.]+, #queue-req: \d+$",
}
ENDS = {
    "sigterm": r"SIGTERM received\. signum=None frame=None\. Draining requests and shutting down\.\.\.$",
    "drained": r"Gracefully exiting\.\.\. Remaining number of requests \d+\. "
    r"Remaining requests remaining_rids=\[.*\]\.$",
}


@pytest.mark.parametrize("version", ["0.5.11", "0.5.23", "h200-0.5.11-mtp-on", "h200-0.5.11-mtp-off"])
def test_recorded_log_lines(version: str) -> None:
    log = (CAPTURES / version / "server.log").read_text()
    for name, pattern in (LINES | ENDS).items():
        assert re.search(STAMP + f"(?:{pattern})", log, re.M), name


@pytest.mark.parametrize("version", ["0.5.11", "0.5.23"])
def test_simulated_log_lines(version: str, servers: dict[str, SimulatedProcess], sources: dict[str, Source]) -> None:
    server = servers[version]
    for name, pattern in LINES.items():
        assert re.search(STAMP + f"(?:{pattern})", server.log, re.M), name
    assert "SIMULATED" in server.log.splitlines()[0]


@pytest.mark.parametrize(
    ("recording", "flags", "code", "kind", "sentence"),
    [
        ("bad_flag", ["--mamba-radix-cache-strategy", "auto"], 2, End.FLAG_ERROR, "unrecognized arguments"),
        ("mtp_with_radix_cache", MTP, 1, End.CONFIG_ERROR, "not compatible with radix cache"),
        (
            "out_of_memory",
            ["--disable-radix-cache", "--mem-fraction-static", "0.3"],
            137,
            End.OUT_OF_MEMORY,
            "Not enough memory",
        ),
    ],
)
def test_a_launch_that_fails_says_why(
    recording: str, flags: list[str], code: int, kind: End, sentence: str, tmp_path: Path
) -> None:
    real = (CAPTURES / "h200-0.5.11-faults" / f"{recording}.log").read_text()
    with simulated(tmp_path, SimulationConfig(startup_s=0.1), *flags, wait=False) as server:
        assert server.ended() == (-9 if code == 137 else code)
        log = server.log
    ends = [diagnose(text, code, was_ready=False) for text in (real, log)]
    assert [end.kind for end in ends] == [kind, kind]
    assert ends[0].sentence == ends[1].sentence
    assert sentence in ends[0].sentence
    assert "SIMULATED" in log.splitlines()[0]
