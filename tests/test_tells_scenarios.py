"""The first tell is the right one; healthy boxes are left alone."""

from __future__ import annotations

import pytest

from genmon.state import TellLevel
from genmon.tells.table import shipped
from genmon.tells.watch import Watch
from tests.labelled import FAULTS, HEALTHY, Scenario, recorded, replayed

RECORDED = (*recorded(), *replayed())
RULES = shipped()


def first(scenario: Scenario, step_s: float) -> str | None:
    """The rule of the first tell, with a state every `step_s` (5 s in the long ones)."""
    watching = Watch(RULES, scenario.facts)
    box = scenario.box()
    box.step_s = 5.0 if scenario.seconds >= 900 else step_s
    for state in box.states(scenario.seconds):
        watching.see(state)
        if watching.tells:
            return watching.tells[0].id
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("step_s", [2.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_the_first_tell_is_the_right_one(step_s: float) -> None:
    scenarios = (*FAULTS, *HEALTHY, *RECORDED)
    wrong = {each.name: (found, each.expected) for each in scenarios if (found := first(each, step_s)) != each.expected}
    assert len(scenarios) >= 100
    assert not wrong


def test_each_rule_has_a_scenario() -> None:
    assert {row.id for row in RULES} - {each.expected for each in FAULTS} <= {"mtp-host-bound"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", HEALTHY, ids=lambda each: each.name)
def test_nothing_above_look_in_a_healthy_day(scenario: Scenario) -> None:
    watching = Watch(RULES, scenario.facts)
    box = scenario.box()
    box.rows = 1_000_000_000 if box.rows else box.rows
    box.step_s = 1.0 if "gaps" in scenario.name or "bursts" in scenario.name else 5.0
    for state in box.states(86_400):
        watching.see(state)
        loud = [tell for tell in watching.tells if tell.level is not TellLevel.LOOK]
        assert not loud, (state.taken_at, loud)
