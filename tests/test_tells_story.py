"""The story: GPUs of 600 W, one of them decodes at C=1 with MTP off."""

from __future__ import annotations

from genmon.commands import Restart
from genmon.state import State, TellLevel
from genmon.tells.table import shipped
from genmon.tells.watch import Watch
from tests.scenarios import FACTS, PRO_6000, START, Box


def watch(box: Box, seconds: float, facts: object = FACTS) -> Watch:
    watching = Watch(shipped(), FACTS)
    for state in box.states(seconds):
        watching.see(state)
    return watching


def test_one_stream_without_mtp_is_told_within_30_s_with_its_watts_and_the_key() -> None:
    box = Box(running=1, mtp=False, servers=1, gpu=PRO_6000, limit_w=600, power=400 / 600, cap=16)
    box = Box(**{**vars(box), "servers": 4})

    def first_only(state: State, _: float) -> State:
        return state

    box.lay_over = first_only
    found = watch(box, 30).tells
    assert found, "nothing was told within 30 s"
    print(found)
    assert found[0].id == "mtp-off"
    assert "400 of 600 W" in found[0].sentence and "MTP is off" in found[0].sentence
    assert found[0].mend == "turn it on: m"
    assert isinstance(found[0].prescription, Restart) and found[0].prescription.mtp is True
    assert found[0].level is TellLevel.LOOK
    assert START <= found[0].since <= START + 30
