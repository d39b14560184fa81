"""What a killed engine left behind: found by the next one, ended, and nobody else's."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from genmon.fleet import sessions
from genmon.fleet.groups import MARK, Group, Groups
from tests.fleet import kill, session, stub_pid, until

SLEEPER = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[int]:
    """The session of a ready server, two children and all, whose engine was killed with -9."""
    engine = subprocess.Popen(
        [sys.executable, "-m", "tests.fleet_engine", str(tmp_path), "--children", "2"],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    assert engine.stdout is not None
    leader = int(engine.stdout.readline())
    engine.kill()
    engine.wait()
    engine.stdout.close()
    assert len(session(leader)) == 4
    yield leader
    for pid in session(leader):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Another's process, in a session of its own."""
    process = subprocess.Popen(SLEEPER, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def ledger(folder: Path, *groups: Group) -> None:
    (folder / "servers.json").write_bytes(msgspec.json.encode(groups))


def recorded(folder: Path) -> list[Group]:
    return msgspec.json.decode((folder / "servers.json").read_bytes(), type=list[Group])


def group(leader: sessions.Process | None, **more: object) -> Group:
    known = Group(server="s0", launch="a-launch", boot=sessions.boot_id(), argv=("sglang",), leader=leader)
    return replace(known, **more)


@pytest.mark.parametrize(
    "dead", ["nothing else", pytest.param("watcher", marks=pytest.mark.slow), "server and watcher"]
)
def test_leftovers_are_ended(orphan: int, tmp_path: Path, dead: str) -> None:
    """With the watcher and the server gone, only processes without a mark are left, as SGLang's scheduler is."""
    server = stub_pid(orphan)
    if "server" in dead:
        kill(orphan, signal.SIGSTOP)  # it would sweep
        kill(server, signal.SIGKILL)
    if "watcher" in dead:
        kill(orphan, signal.SIGKILL)
        until(lambda: orphan not in session(orphan), "the watcher's end")
    assert session(orphan)
    told = Groups(tmp_path).end_leftovers()
    assert session(orphan) == {}
    assert len(told) == 1
    assert told[0].startswith("ended s0, left by an earlier run (process ")
    assert recorded(tmp_path) == []
    assert Groups(tmp_path).end_leftovers() == []


def test_a_launch_is_found_by_its_mark_before_its_leader_was_noted(tmp_path: Path) -> None:
    process = subprocess.Popen(SLEEPER, env={MARK: "a-launch"}, start_new_session=True)
    try:
        ledger(tmp_path, group(None))
        assert len(Groups(tmp_path).end_leftovers()) == 1
        assert process.wait(10) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_others_processes_are_left_alone(tmp_path: Path, stranger: subprocess.Popen[bytes]) -> None:
    """Its number is in the ledger, but it is another process, or of another boot."""
    own = sessions.look(stranger.pid)
    assert own is not None
    earlier = replace(own, started_ticks=own.started_ticks - 1)
    ledger(
        tmp_path,
        group(earlier),
        group(earlier, members=(earlier,)),
        group(own, boot="another"),
    )
    assert Groups(tmp_path).end_leftovers() == []
    assert stranger.poll() is None
    ledger(tmp_path, group(own))  # and the proof that it would have been ended
    assert len(Groups(tmp_path).end_leftovers()) == 1
    assert stranger.wait(10) == -signal.SIGKILL


def test_an_unreadable_ledger_is_told_and_kept_and_the_lease_is_taken(orphan: int, tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_bytes(b'[{"server": "s0"')
    leases = set(tmp_path.glob("lease-*"))
    assert len(leases) == 1
    groups = Groups(tmp_path)
    told = groups.end_leftovers()
    assert "servers.json is unreadable" in told[0]
    assert (tmp_path / "servers.json.unreadable").read_bytes() == b'[{"server": "s0"'
    # The new engine keeps its own lease alive, never the orphan's: its watcher ends it.
    assert set(tmp_path.glob("lease-*")) == {groups.lease}


@pytest.mark.slow
def test_an_orphan_that_no_ledger_knows_ends_by_its_lease(orphan: int, tmp_path: Path) -> None:
    (tmp_path / "servers.json").unlink()
    Groups(tmp_path).end_leftovers()
    until(lambda: not session(orphan), "the orphan's end", deadline_s=30.0)


def test_a_launch_is_in_the_ledger_before_it_has_a_process(tmp_path: Path) -> None:
    groups = Groups(tmp_path)
    launch = groups.begin("s3", ("python", "-m", "sglang.launch_server"))
    (noted,) = recorded(tmp_path)
    assert (noted.server, noted.launch, noted.leader) == ("s3", launch, None)
    assert noted.argv == ("python", "-m", "sglang.launch_server")
    process = subprocess.Popen(SLEEPER, env={MARK: launch}, start_new_session=True)
    try:
        groups.enter(launch, process.pid)
        assert recorded(tmp_path)[0].leader == sessions.look(process.pid)
        assert groups.end(launch) == []
        assert process.wait(10) == -signal.SIGKILL
        assert recorded(tmp_path) == []
        assert groups.end(launch) == []
    finally:
        process.kill()
        process.wait()


def test_the_lease_is_kept_and_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genmon.fleet.groups._TOUCH_S", 0.02)
    groups = Groups(tmp_path)

    async def run() -> None:
        keeping = asyncio.create_task(groups.keep_alive())
        os.utime(groups.lease, (1.0, 1.0))
        groups_lease_is_fresh = lambda: groups.lease.exists() and groups.lease.stat().st_mtime > 1.0  # noqa: E731
        await asyncio.to_thread(until, groups_lease_is_fresh, "touched")
        groups.lease.unlink()
        await asyncio.to_thread(until, groups.lease.exists, "made again")
        keeping.cancel()
        await asyncio.wait([keeping])

    asyncio.run(run())
    assert not groups.lease.exists()


def test_trouble_with_the_disk_does_not_end_the_engine(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    groups = Groups(folder)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    groups.touch()
    launch = groups.begin("s0", ())
    assert groups.end(launch) == []


def test_what_will_not_die_is_reported() -> None:
    undying = sessions.Process(2**22, 1, 2**22)
    assert sessions.end(lambda: [undying], wait_s=0.1) == [undying]
