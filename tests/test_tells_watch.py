"""What the watch does with rules: holding, clearing, grace, causes before consequences, what it cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from genmon.commands import Restart, SetConcurrency
from genmon.errors import ConfigError
from genmon.state import Effect, FlagChange, ServerPhase, State, TellLevel, Verdict
from genmon.tells.inputs import Reading as Inputs
from genmon.tells.normal import FIGURES, Band, Learned, Normal, Reading, Setting
from genmon.tells.past import Past
from genmon.tells.table import rules, shipped
from genmon.tells.watch import Watch
from tests.scenarios import FACTS, H200, START, Box, gpus, servers

RULES = shipped()


def ids(watching: Watch) -> list[str]:
    return [tell.id for tell in watching.tells]


def run(box: Box, seconds: float, watching: Watch | None = None) -> Watch:
    watching = watching or Watch(RULES, FACTS)
    for state in box.states(seconds):
        watching.see(state)
    return watching


def only(*ids: str) -> Watch:
    """A watch for a few rules."""
    return Watch([row for row in RULES if row.id in ids], FACTS)


def when_up(box: Box, id: str, seconds: float = 200) -> list[tuple[float, float]]:
    """When a tell was up, as seconds since the start."""
    watching, spells = only(id), list[tuple[float, float]]()
    for state in box.states(seconds):
        watching.see(state)
        if id in ids(watching):
            at = state.taken_at - START
            spells.append((spells.pop()[0], at) if spells and spells[-1][1] == at - 1 else (at, at))
    return spells


def idle(state: State) -> State:
    return servers(state, in_flight=0, running=0, tokens_per_s=0.0)


def without_mtp(state: State) -> State:
    return servers(state, mtp=False, acceptance_length=None, argv=("python", "--disable-radix-cache"))


def test_a_signature_must_hold_and_its_tell_stays_until_it_has_been_over_for_a_while() -> None:
    def off_for_40_s(state: State, at: float) -> State:
        return idle(state) if 100 <= at < 140 else state

    [(up, down)] = when_up(Box(lay_over=off_for_40_s), "idle")
    assert 120 <= up <= 130, "held for 20 s, over a median of 10 s"
    assert 155 <= down <= 175, "20 s after it was over"


def test_a_short_lapse_neither_brings_a_tell_up_nor_takes_it_down() -> None:
    assert when_up(Box(lay_over=lambda state, at: idle(state) if 100 <= at < 112 else state), "idle") == []
    busy_for_a_moment = Box(lay_over=lambda state, at: state if at < 40 or 110 <= at < 117 else idle(state))
    assert len(when_up(busy_for_a_moment, "idle")) == 1


def test_the_first_minute_after_a_restart_is_not_judged_but_a_lost_gpu_is() -> None:
    def restarted(state: State, at: float) -> State:
        state = servers(state, launches=2, since=START + 20, overlap=False)
        return state if at < 20 else gpus(state, lost=at > 30)

    watching, first = only("gpu-lost", "overlap-off"), dict[str, float]()
    for state in Box(lay_over=restarted).states(110):
        watching.see(gpus(state, lost=False) if state.taken_at > START + 60 else state)
        for id in ids(watching):
            first.setdefault(id, state.taken_at - START)
    assert first["gpu-lost"] < 40
    assert 80 <= first["overlap-off"] <= 95, "60 s of grace, then 5 s to hold"


def test_a_cause_hides_its_consequences() -> None:
    starved = Box(power=0.35, server={"overlap": False}, sample={"utilization": 0.4})
    assert ids(run(starved, 120)) == ["overlap-off"]
    assert set(ids(run(replace_box(starved, server={}), 120))) == {"cpu-bound"}, "which hides the low watts"


def replace_box(box: Box, **fields: object) -> Box:
    return Box(**{**{name: value for name, value in vars(box).items() if not name.startswith("_")}, **fields})


def test_servers_with_the_same_trouble_share_a_tell() -> None:
    [tell] = run(Box(servers=4, mtp=False, running=4), 60).tells
    assert tell.servers == ("s0", "s1", "s2", "s3")
    assert tell.server is None
    assert tell.sentence.startswith("Each of GPUs 0, 1, 2 and 3 draws 522 of 700 W at C=4")
    assert tell.prescription == Restart(servers=("s0", "s1", "s2", "s3"), mtp=True)


def test_a_tell_shows_its_numbers_what_is_usual_and_what_would_prove_it_wrong() -> None:
    [tell] = run(Box(mtp=False, running=8), 60).tells
    evidence = {each.name: each for each in tell.evidence}
    fraction = evidence["power over the enforced limit"]
    assert (fraction.value, fraction.usual) == ("75%", "60% to 84% (prior: 27B bf16 on three H200)")
    assert evidence["decoded tokens per second and running request"].value == "55 tok/s"
    assert evidence["energy counter over decoded tokens, 15 s"].value == "1.20 J/tok"
    assert tell.wrong_if is not None and "10 %" in tell.wrong_if


def test_a_dismissed_tell_comes_up_anew_only_after_it_was_over() -> None:
    def on_and_off(state: State, at: float) -> State:
        return idle(state) if at < 100 or at > 200 else state

    watching, seen = only("idle"), list[float]()
    for state in Box(lay_over=on_and_off).states(250):
        watching.see(state)
        if "idle" in ids(watching):
            seen.append(state.taken_at - START)
            if seen[-1] < 100:
                assert watching.dismiss("idle")
                assert "idle" not in ids(watching)
                assert not watching.dismiss("idle"), "it is gone already"
    assert len([at for at in seen if at < 150]) == 1
    assert any(at > 220 for at in seen)


def test_a_prior_says_look_and_history_warns() -> None:
    setting = Setting(gpu_uuid="GPU-0", gpu_name=H200, model=FACTS.model, quantisation="", mtp=True, running=8)
    usual = [Reading(setting=setting, figures={"power_fraction": 0.74 + n / 1000}) for n in range(20)]
    [by_prior] = run(Box(running=8, power=0.45), 140).tells
    [by_history] = run(Box(running=8, power=0.45), 140, Watch(RULES, FACTS, Learned(usual))).tells
    assert (by_prior.id, by_prior.level) == ("waits", TellLevel.LOOK)
    assert (by_history.id, by_history.level) == ("waits", TellLevel.WARN)
    assert "66% to 84% (history, n=20)" in [each.usual for each in by_history.evidence]


def test_no_prior_ever_says_more_than_look() -> None:
    class Prior(Normal):
        def band(self, figure: str, setting: Setting) -> Band:
            return Band(low=1e9, usual=1e9, high=1e9, source="made up")

        def crossover(self, setting: Setting) -> Band:
            return Band(low=0, usual=1e9, high=0, source="made up")

    for mtp in (False, True):
        told = run(Box(mtp=mtp, running=8, sample={"utilization": 0.8}), 100, Watch(RULES, FACTS, Prior())).tells
        assert told and all(tell.level is TellLevel.LOOK for tell in told)


def test_mtp_that_brings_no_more_than_none_did_is_told_from_history() -> None:
    setting = Setting(gpu_uuid="GPU-0", gpu_name=H200, model=FACTS.model, quantisation="", mtp=False, running=8)
    without = [Reading(setting=setting, figures={"tokens_per_s_request": 55.0}) for _ in range(8)]
    box = Box(running=8, power=0.6, speed=0.5, sample={"utilization": 0.7})
    watching = Watch(RULES, FACTS, Learned(without))
    run(box, 200, watching)
    assert ids(watching)[0] == "mtp-host-bound"


def test_history_needs_five_readings_of_the_same_setting_and_prefers_the_same_card() -> None:
    def setting(uuid: str = "GPU-0", running: float = 8, mtp: bool = True) -> Setting:
        return Setting(gpu_uuid=uuid, gpu_name=H200, model="m", quantisation="", mtp=mtp, running=running)

    here = [Reading(setting=setting(), figures={"power_fraction": 0.70}) for _ in range(5)]
    there = [Reading(setting=setting("GPU-1"), figures={"power_fraction": 0.60}) for _ in range(50)]
    learned = Learned([*here, *there])
    band = learned.band("power_fraction", setting())
    assert band is not None and band.usual == pytest.approx(0.70) and band.n == 5
    other = learned.band("power_fraction", setting("GPU-7"))
    assert other is not None and other.usual == pytest.approx(0.60) and other.n == 55
    assert learned.band("power_fraction", setting(running=32)) is None
    assert learned.band("power_fraction", setting(mtp=False)) is None
    assert Learned(here[:4]).band("power_fraction", setting()) is None
    assert set(FIGURES) == {"power_fraction", "tokens_per_s_request", "joules_per_token", "acceptance_length"}


def test_what_cannot_be_checked_is_said_with_its_reason() -> None:
    whole = run(Box(), 60)
    blind = run(Box(lay_over=lambda state, _: replace(servers(state, overlap=None), gpus=())), 60)
    reasons = {each.rule: each.reason for each in blind.not_checked}
    assert reasons["overlap-off"] == "not known: overlap (the server's own word); on s0"
    assert "power_fraction (the GPU driver)" in reasons["waits"]
    assert reasons["late"] == "not known: deadline_s (tells.deadline in the run file)"
    assert "wedged" not in reasons, "it needs no GPU"
    assert {"overlap-off", "waits"}.isdisjoint(each.rule for each in whole.not_checked)


def test_figures_of_a_poll_long_ago_are_not_judged() -> None:
    def old(state: State, at: float) -> State:
        return servers(state, taken_at=START + 50, acceptance_length=1.0) if at > 50 else state

    assert ids(run(Box(lay_over=old), 200)) == ["not-answering"]


def test_a_server_of_somebody_else_gets_no_restart() -> None:
    box = Box(running=4, mtp=False, server={"external": True, "argv": ()})
    [tell] = run(box, 60).tells
    assert (tell.id, tell.prescription) == ("mtp-off", None)


def test_mtp_that_was_useless_is_not_prescribed_again() -> None:
    def turned_off(state: State, at: float) -> State:
        if at < 120:
            return state
        return servers(without_mtp(state), launches=2, since=START + 120)

    useless = Box(running=4, acceptance=1.05, step_s=2, lay_over=turned_off)
    assert "mtp-off" not in ids(run(useless, 280, only("mtp-off")))
    good = Box(running=4, acceptance=2.8, step_s=2, lay_over=turned_off)
    assert "mtp-off" in ids(run(good, 280, only("mtp-off")))


def test_a_prescription_that_was_followed_tells_what_it_did() -> None:
    effect = Effect(figure="tokens_per_s", before=64, after=120, change=0.87, low=0.8, high=0.94, n_before=9, n_after=9)
    verdict = Verdict(word="better", sentence="better: tokens/s +87.0 %, 539 → 476 W", effects=(effect,), settled=True)
    change = FlagChange(id=7, what="MTP on", servers=("s0",), started_at=START + 60, stage="s0: starting")

    def followed(state: State, at: float) -> State:
        if at < 60:
            return without_mtp(state)
        if at < 100:
            state = servers(state, phase=ServerPhase.STARTING, launches=2)
            return replace(state, changes=(change,))
        ended = replace(change, ended_at=START + 100, outcome="done", verdict=verdict if at > 200 else None)
        return replace(servers(state, launches=2, since=START + 100), changes=(ended,))

    watching, said = only("mtp-off", "mtp-refused"), list[str | None]()
    for state in Box(running=1, step_s=5, lay_over=followed).states(1100):
        watching.see(state)
        said += [tell.followed for tell in watching.tells if tell.id == "mtp-off" and tell.followed not in said]
    assert said == [None, "s0: starting", "being measured", verdict.sentence]
    assert ids(watching) == [], "a quarter of an hour later it is history"


def test_more_rows_in_flight_tell_what_they_did() -> None:
    def followed(state: State, at: float) -> State:
        if at < 300:
            return replace(state, concurrency=1)
        state = servers(state, tokens_per_s=1700.0, running=32, in_flight=32, aim=32)
        return gpus(state, power_w=649.0)

    watching = only("concurrency-low")
    for state in Box(running=1, cap=32, step_s=5, lay_over=followed).states(600):
        watching.see(state)
        if state.taken_at == START + 200:
            assert watching.tells[0].prescription == SetConcurrency(None)
    [tell] = watching.tells
    assert tell.followed is not None and tell.followed.startswith("120 → 1700 tokens/s, 476 → 649 W")


OWN = """\
[hot-memory]
level = "warn"
looks_for = "much of the KV cache in use"
when = "kv_usage > 0.3 and median(running, 60) > 4"
says = "{who} has {kv_usage} of its KV cache in use"
mend = "nothing"
wrong_if = "it is meant"

[mtp-off]
off = true
"""


def test_a_file_of_rules_adds_to_the_table_and_takes_from_it(tmp_path: Path) -> None:
    own = tmp_path / "rules.toml"
    own.write_text(OWN)
    table = rules(own)
    assert table[0].id == "hot-memory"
    assert "mtp-off" not in [row.id for row in table]
    [tell] = run(Box(running=8, mtp=False), 100, Watch(table, FACTS)).tells
    assert (tell.id, tell.sentence) == ("hot-memory", "GPU 0 has 40% of its KV cache in use")


@pytest.mark.parametrize(
    ("line", "wrong", "sentence"),
    [
        (4, 'when = "kv_use > 0.3"', "there is no input kv_use"),
        (4, 'when = "__import__(1)"', "__import__(…) is not one of the functions"),
        (4, 'when = "kv_usage.real > 1"', "kv_usage.real is not part of the language"),
        (4, 'when = "kv_usage >"', "not an expression: kv_usage >"),
        (5, 'says = "{kv_use} is high"', "there is no input kv_use to fill in"),
        (2, 'level = "loud"', "invalid enum value 'loud'"),
        (4, 'wen = "kv_usage > 0.3"', "unknown field `wen`"),
    ],
)
def test_what_is_wrong_in_a_file_of_rules_is_said_with_its_line(
    line: int, wrong: str, sentence: str, tmp_path: Path
) -> None:
    lines = OWN.splitlines()
    lines[line - 1] = wrong
    own = tmp_path / "rules.toml"
    own.write_text("\n".join(lines))
    with pytest.raises(ConfigError) as refused:
        rules(own)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(f"{own}, line {line}: rule hot-memory: ")


def test_a_file_of_rules_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.toml \(tells.rules\) cannot be read: No such file"):
        rules(tmp_path / "nowhere.toml")


def test_a_gauge_that_sticks_while_the_server_idles_hides_no_other_tenant() -> None:
    idle_by_its_counter: dict[str, object] = {"in_flight": 0, "running": 32, "tokens_per_s": 0.0}
    box = Box(rows=0, server=idle_by_its_counter, sample={"utilization": 0.97})
    assert ids(run(box, 60, only("other-tenant"))) == ["other-tenant"]


def test_a_flag_with_0_is_none() -> None:
    box = Box(argv=("python", "--disable-radix-cache", "--cpu-offload-gb", "0"))
    assert ids(run(box, 60, only("offload"))) == []
    box = Box(argv=("python", "--disable-radix-cache", "--cpu-offload-gb", "20"))
    assert ids(run(box, 60, only("offload"))) == ["offload"]


def test_a_counter_that_starts_anew_is_no_loss() -> None:
    past = Past()
    for second in range(40):
        since_reset = second if second < 20 else second - 20
        reading: Inputs = {"energy_j": 500.0 * since_reset, "decoded": 100 * second}
        past.add(START + second, reading)
        joules = past.latest("joules_per_token")
        assert joules is None or 4.5 <= joules <= 5.1
    assert past.latest("joules_per_token") is not None


def test_a_sister_card_that_draws_9_percent_less_is_no_reason_to_tell() -> None:
    setting = Setting(gpu_uuid="GPU-7", gpu_name=H200, model=FACTS.model, quantisation="", mtp=True, running=8)
    sister = Learned([Reading(setting=setting, figures={"power_fraction": 0.76 + n / 1000}) for n in range(20)])
    watching = Watch([row for row in RULES if row.id == "waits"], FACTS, sister)
    assert ids(run(Box(running=8, power=0.76 * 0.91), 140, watching)) == []
