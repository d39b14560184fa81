"""The simulated server as a process: its ends, its queue, its faults and its answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import psutil
import pytest

from genmon.config.schema import SimulationConfig
from genmon.job.answers import classify, loops
from genmon.job.row import Answer, Json
from genmon.sim import text
from genmon.state import AnswerClass
from tests.simulated import MTP, Reply, SimulatedProcess, ask, chat, simulated, until

QUICK = SimulationConfig(startup_s=0.05, output_tokens=24)
QUICK_NEW = SimulationConfig(startup_s=0.05, output_tokens=24, version="0.5.23")
FAST = (*MTP, "--disable-radix-cache")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedProcess]:
    """A 0.5.11 with speculation, for tests that leave it as they found it: idle."""
    with simulated(tmp_path_factory.mktemp("shared"), QUICK, *FAST) as server:
        yield server


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


def answer(reply: Reply) -> Answer:
    first = cast("list[dict[str, Json]]", reply.json["choices"])[0]
    message = cast("dict[str, str | None]", first["message"])
    return Answer(
        content=message["content"] or "",
        reasoning=message["reasoning_content"],
        finish_reason=str(first["finish_reason"]),
    )


def tokens(reply: Reply) -> int:
    return cast("dict[str, int]", reply.json["usage"])["completion_tokens"]


def long_chat(url: str, **more: Json) -> Reply:
    """A request that takes a minute."""
    return chat(url, "On and on.", max_tokens=4000, ignore_eos=True, **more)


def hang_up(url: str, body: bytes) -> Callable[[], None]:
    """Send a chat request; the function returned closes the connection without reading a reply."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    return connection.close


def test_sigterm_drains_and_still_takes_requests(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    def drained(server: SimulatedProcess) -> int:
        server.wait_ready()
        first = pool.submit(chat, server.url, max_tokens=60, ignore_eos=True)
        until(lambda: server.loads()["num_running_reqs"] == 1, "one request runs")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "SIGTERM received" in server.log, "the drain begins")
        assert ask(server.url, "GET", "/health").status == 503
        assert tokens(chat(server.url, max_tokens=8, ignore_eos=True)) == 8
        assert tokens(first.result()) == 60
        code = server.ended()
        assert "Remaining number of requests 0. Remaining requests remaining_rids=[]." in server.log
        return code

    with (
        simulated(tmp_path, QUICK, *FAST, wait=False) as old,
        simulated(tmp_path, QUICK_NEW, *FAST, wait=False) as new,
    ):
        assert list(pool.map(drained, (old, new))) == [-9, 0]


def test_0_5_11_waits_for_ever_on_a_request_it_refused(tmp_path: Path) -> None:
    with simulated(tmp_path, QUICK, wait=False) as old, simulated(tmp_path, QUICK_NEW, wait=False) as new:
        for server in (old, new):
            server.wait_ready()
            assert chat(server.url, "word " * 300_000).status == 400
            server.process.send_signal(signal.SIGTERM)
        assert new.ended() == 0
        until(lambda: "Remaining number of requests 1." in old.log, "it says what it waits for")
        assert old.process.poll() is None


def test_the_port_is_closed_while_it_loads_and_health_is_503_while_it_warms_up(tmp_path: Path) -> None:
    with simulated(tmp_path, SimulationConfig(startup_s=1.0), wait=False) as server:
        until(lambda: "Load weight begin" in server.log, "it loads")
        with pytest.raises(ConnectionRefusedError):
            ask(server.url, "GET", "/model_info")
        until(lambda: "Uvicorn running" in server.log, "the port opens")
        assert ask(server.url, "GET", "/health").status == 503
        assert ask(server.url, "GET", "/model_info").status == 200
        assert "fired up" not in server.log


def test_sigterm_while_it_loads_ends_it_at_once(tmp_path: Path) -> None:
    with simulated(tmp_path, SimulationConfig(startup_s=30.0), wait=False) as server:
        until(lambda: "Load weight begin" in server.log, "it loads")
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == -signal.SIGTERM


def test_above_the_cap_requests_queue_and_come_in_order(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with simulated(tmp_path, QUICK, *FAST, "--max-running-requests", "2") as server:
        done: list[int] = []

        def one(number: int, length: int) -> None:
            chat(server.url, f"No. {number}", max_tokens=length, ignore_eos=True)
            done.append(number)

        def came_in(running: int, waiting: int) -> Callable[[], bool]:
            def asked() -> bool:
                load = server.loads()
                return (load["num_running_reqs"], load["num_waiting_reqs"]) == (running, waiting)

            return asked

        waits: list[Future[None]] = []
        for number, (length, running, waiting) in enumerate(((30, 1, 0), (70, 2, 0), (10, 2, 1), (10, 2, 2))):
            waits.append(pool.submit(one, number, length))
            until(came_in(running, waiting), f"{running} run and {waiting} wait")
        for wait in waits:
            wait.result()
        assert done == [0, 2, 3, 1]


def test_abort_goes_by_prefix_and_answers_200_with_what_there_is(
    shared: SimulatedProcess, pool: ThreadPoolExecutor
) -> None:
    aborted = shared.metric("num_aborted_requests_total")
    asked = {rid: pool.submit(long_chat, shared.url, rid=rid) for rid in ("a1", "a10", "b1")}
    until(lambda: shared.loads()["num_running_reqs"] == 3, "three requests run")
    until(lambda: cast("int", shared.loads()["num_used_tokens"]) > 60, "some tokens")
    ask(shared.url, "POST", "/abort_request", {"rid": "a1"})
    for rid in ("a1", "a10"):
        reply = asked[rid].result()
        assert reply.status == 200
        cut = answer(reply)
        assert classify(cut, thinking=True) is AnswerClass.ABORTED
        assert cut.reasoning
        assert 0 < tokens(reply) < 4000
    assert not asked["b1"].done()
    ask(shared.url, "POST", "/abort_request", {"abort_all": True})
    assert answer(asked["b1"].result()).finish_reason == "abort"
    assert shared.metric("num_aborted_requests_total") == aborted + 3


def test_a_client_that_hangs_up_frees_its_place(shared: SimulatedProcess) -> None:
    close = hang_up(shared.url, b'{"messages":[{"role":"user","content":"x"}],"max_tokens":9000,"ignore_eos":true}')
    until(lambda: shared.loads()["num_running_reqs"] == 1, "it runs")
    close()
    until(lambda: shared.loads()["num_running_reqs"] == 0, "its place is free")


def test_the_live_counter_moves_at_each_step_and_the_other_when_a_request_ends(
    shared: SimulatedProcess, pool: ThreadPoolExecutor
) -> None:
    finished = shared.metric("generation_tokens_total")
    asked = pool.submit(long_chat, shared.url)
    seen: list[float] = []

    def moved() -> bool:
        seen.append(shared.metric("realtime_tokens_total", 'mode="decode"'))
        return len(set(seen)) > 5

    until(moved, "five steps")
    assert seen == sorted(seen)
    assert shared.metric("generation_tokens_total") == finished
    assert tokens(chat(shared.url, "Another.", max_tokens=10, ignore_eos=True)) == 10
    assert shared.metric("generation_tokens_total") == finished + 10
    ask(shared.url, "POST", "/abort_request", {"abort_all": True})
    asked.result()


def test_it_crashes_as_a_scheduler_does(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with simulated(tmp_path, SimulationConfig(startup_s=0.05, crash_after_s=0.3)) as server:
        cut = pool.submit(long_chat, server.url)
        assert server.ended() == -9
        assert isinstance(cut.exception(), ConnectionError | http.client.HTTPException)
        assert "Scheduler hit an exception" in server.log
        assert "SIGQUIT received" in server.log


def test_it_hangs_and_goes_on_answering(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with simulated(tmp_path, SimulationConfig(startup_s=0.05, hang_after_s=0.25)) as server:
        waits = pool.submit(long_chat, server.url)
        counts: list[float] = []

        def stands_still() -> bool:
            counts.append(server.metric("realtime_tokens_total", 'mode="decode"'))
            return counts[-1] > 0 and len(counts) > 15 and len(set(counts[-15:])) == 1

        until(stands_still, "nothing is decoded")
        assert ask(server.url, "GET", "/model_info").status == 200
        assert server.loads()["num_running_reqs"] == 1
        assert not waits.done()
        server.process.kill()


def test_rubbish_comes_in_its_shares_and_the_same_seed_gives_the_same(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    simulation = SimulationConfig(
        startup_s=0.1,
        empty_share=0.2,
        loop_share=0.2,
        unclosed_share=0.2,
        abort_share=0.2,
        error_share=0.25,
        seed=3,
    )

    def kinds(server: SimulatedProcess) -> list[str]:
        replies = [chat(server.url, f"No. {number}", max_tokens=2) for number in range(16)]
        assert {reply.status for reply in replies} == {200, 500}
        return [classify(answer(reply), thinking=True) if reply.status == 200 else "500" for reply in replies]

    with (
        simulated(tmp_path, simulation, wait=False) as first,
        simulated(tmp_path, simulation, wait=False) as second,
    ):
        for server in (first, second):
            server.wait_ready()
        one, other = pool.map(kinds, (first, second))
    assert one == other
    assert one.count("500") == 4
    assert {AnswerClass.EMPTY, AnswerClass.LOOP, AnswerClass.UNCLOSED_THOUGHT, AnswerClass.ABORTED} <= set(one)


def test_good_answers_are_complete_varied_and_the_same_for_the_same_prompt(
    shared: SimulatedProcess, pool: ThreadPoolExecutor
) -> None:
    prompts = [f"Question {number % 16}" for number in range(32)]
    replies = list(pool.map(lambda prompt: chat(shared.url, prompt), prompts))
    answers = [answer(reply) for reply in replies]
    assert {classify(each, thinking=True) for each in answers} == {AnswerClass.COMPLETE}
    assert answers[:16] == answers[16:]
    assert len({each.content for each in answers}) == 16
    lengths = [tokens(reply) for reply in replies[:16]]
    assert 12 < sum(lengths) / 16 < 48, "24 were asked for"
    assert len(set(lengths)) > 8


def test_a_long_answer_is_no_loop() -> None:
    for seed in range(20):
        assert not loops(" ".join(text.words(seed, 3000)))
    assert loops(" ".join(text.loop(10)))


def test_a_stream_says_what_the_whole_reply_says(shared: SimulatedProcess, pool: ThreadPoolExecutor) -> None:
    plain = pool.submit(chat, shared.url)
    parts: dict[str, list[str]] = {"reasoning_content": [], "content": []}
    for line in chat(shared.url, stream=True).body.decode().splitlines():
        if line.startswith("data: {"):
            delta = json.loads(line[6:])["choices"][0]["delta"]
            for name, said in parts.items():
                said.append(delta.get(name) or "")
    whole = answer(plain.result())
    assert "".join(parts["reasoning_content"]) == whole.reasoning
    assert "".join(parts["content"]) == whole.content
    assert sum(bool(each) for each in parts["content"]) > 1, "it comes in pieces"


def test_a_request_tells_its_acceptance_where_its_version_does(tmp_path: Path, shared: SimulatedProcess) -> None:
    def told_by(server: SimulatedProcess) -> dict[str, Json]:
        return chat(
            server.url, max_tokens=30, ignore_eos=True, return_spec_tokens_details=True, return_meta_info=True
        ).json

    with simulated(tmp_path, QUICK_NEW, *FAST) as new:
        told = told_by(new)
    details = cast("dict[str, dict[str, float]]", told["sglext"])["spec_tokens_details"]
    meta = cast("list[dict[str, dict[str, float]]]", told["choices"])[0]["meta_info"]
    assert 1 <= details["spec_accept_length"] <= 4
    assert details["spec_accept_length"] == 30 / details["spec_verify_ct"]
    assert meta["spec_accept_length"] == details["spec_accept_length"]
    silent = told_by(shared)
    assert "sglext" not in silent
    assert "meta_info" not in cast("list[dict[str, Json]]", silent["choices"])[0]


def test_it_says_simulated(shared: SimulatedProcess) -> None:
    assert ask(shared.url, "GET", "/server_info").json["simulated"] is True
    assert ask(shared.url, "GET", "/model_info").json["simulated"] is True
    assert "SIMULATED" in shared.log.splitlines()[0]
    assert "# HELP sglang:num_running_reqs SIMULATED" in ask(shared.url, "GET", "/metrics").body.decode()


def test_an_api_key_guards_all_but_health_and_metrics(tmp_path: Path) -> None:
    with simulated(tmp_path, QUICK, "--api-key", "secret") as server:
        assert chat(server.url).status == 401
        assert ask(server.url, "GET", "/server_info").status == 401
        assert ask(server.url, "GET", "/metrics").status == 200
        allowed = ask(server.url, "GET", "/server_info", headers={"Authorization": "Bearer secret"})
        assert allowed.status == 200


def test_without_enable_metrics_and_health_generation(tmp_path: Path) -> None:
    env = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}
    with simulated(tmp_path, QUICK, metrics=False, env=env) as server:
        began = time.monotonic()
        assert ask(server.url, "GET", "/health").status == 200
        assert time.monotonic() - began < 0.5, "it generates nothing"
        assert ask(server.url, "GET", "/metrics").status == 404
        chat(server.url, max_tokens=48, ignore_eos=True)
        assert "Decode batch" in server.log
        assert server.loads()["gen_throughput"] == 0.0


@pytest.mark.slow
def test_four_servers_at_full_load_leave_the_cpu_to_the_engine(tmp_path: Path) -> None:
    """36 rows a second over four servers of 32 running each: under 15 % of a core each."""
    simulation = SimulationConfig(startup_s=0.1, output_tokens=190)
    with contextlib.ExitStack() as stack:
        servers: list[SimulatedProcess] = [
            stack.enter_context(simulated(tmp_path, simulation, *FAST)) for _ in range(4)
        ]
        ended = threading.Event()

        def work(server: SimulatedProcess, number: int) -> int:
            rows = 0
            while not ended.is_set():
                chat(server.url, f"{number} {rows}", max_tokens=4000)
                rows += 1
            return rows

        with ThreadPoolExecutor(128) as pool:
            rows = [pool.submit(work, server, number) for server in servers for number in range(32)]
            before = [sum(psutil.Process(server.process.pid).cpu_times()[:2]) for server in servers]
            began = time.monotonic()
            ended.wait(12.0)
            took_s = time.monotonic() - began
            after = [sum(psutil.Process(server.process.pid).cpu_times()[:2]) for server in servers]
            ended.set()
        shares = [(end - start) / took_s for start, end in zip(before, after, strict=True)]
        print(shares, sum(row.result() for row in rows) / took_s)
        assert max(shares) < 0.15
