"""`genmon ctl` on a run that goes on: planned, carried out, undone, refused, judged."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.test_detached import demo, genmon

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_flags_are_changed_from_the_command_line(tmp_path: Path) -> None:
    assert demo(tmp_path, 200_000).returncode == 0
    job = tmp_path / "job"
    pid = json.loads((job / "engine.json").read_text())["pid"]

    def ctl(*arguments: str) -> tuple[int, str]:
        ran = genmon("ctl", "--dir", job, *arguments, state_home=tmp_path)
        return ran.returncode, ran.stdout + ran.stderr

    try:
        code, text = ctl("verdict")
        assert (code, text) == (3, "genmon: No flags were changed lately.\n")
        while "not been launched" in (planned := ctl("mtp", "off", "--canary", "--plan"))[1]:
            pass
        assert planned[0] == 0, planned
        assert "−speculative-algorithm NEXTN" in planned[1]
        assert ctl("verdict")[0] == 3  # a plan changes nothing
        code, text = ctl("mtp", "off", "--canary")
        assert code == 0, text
        assert "change 1, s0: MTP off: done" in text
        told = json.loads(ctl("verdict", "--json")[1])
        assert (told["what"], told["servers"], told["canary"], told["outcome"]) == ("MTP off", ["s0"], True, "done")
        code, text = ctl("restart", "--gpu", "1", "--set", "mem-fraction-static=0.99")
        assert code == 1, text
        assert "Not enough memory" in text
        assert "it has its old flags again" in text
        code, text = ctl("restart", "--gpu", "1", "--set", "mem-fraction-statik=0.9")
        assert (code, "has no flag --mem-fraction-statik" in text) == (3, True), text
        assert "No server runs on GPU 9" in ctl("restart", "--gpu", "9")[1]
        code, text = ctl("revert", "1")
        assert code == 0, text
        assert "+speculative-algorithm NEXTN" in text
    finally:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGTERM)
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=60)
