"""Ports: never two the same, on the whole machine; and whose a listening socket is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from genmon.errors import StartError
from genmon.fleet.ports import is_free, is_listened_on_by, reserved
from tests.fleet import free_port

HOLDER = """
import sys
from genmon.fleet.ports import reserved
with reserved(int(sys.argv[1])) as port:
    print(port, flush=True)
    sys.stdin.read()
"""


def test_ports_are_never_given_twice() -> None:
    first = free_port()
    with ExitStack() as held:
        with ThreadPoolExecutor(8) as pool:
            ports = list(pool.map(lambda _: held.enter_context(reserved(first)), range(8)))
        assert len(set(ports)) == 8
    with reserved(first) as again:
        assert again == min(ports)


def test_another_genmon_on_the_machine_gets_another_port() -> None:
    first = free_port()
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        taken = int(other.stdout.readline())
        with reserved(taken) as mine:
            assert mine > taken
        assert is_free(taken)  # nobody listens there yet: that is the point
        other.kill()
        other.wait()
        with reserved(taken) as mine:  # goes with its owner
            assert mine == taken
    finally:
        other.kill()
        other.wait()
        other.stdin.close()
        other.stdout.close()


def test_a_listening_socket_has_an_owner() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        listening.listen()
        assert not is_free(port)
        assert is_listened_on_by(port, [os.getpid()]) is True
        assert is_listened_on_by(port, [os.getppid()]) is False
        with reserved(port) as other:
            assert other != port
    assert is_listened_on_by(port, [os.getpid()]) is None


def test_no_port_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genmon.fleet.ports._RANGE", 1)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(StartError, match=r"set servers\.base_port"), reserved(listening.getsockname()[1]):
            pass
