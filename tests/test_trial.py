"""A change on trial: which stretches are compared, which are left out, and when crashes take flags back."""

from __future__ import annotations

from msgspec.structs import replace

from genmon.engine.slices import Slices
from genmon.engine.trial import Trial
from genmon.state import GpuSample, ServerPhase, ServerState, Verdict


class Clockwork:
    """Servers that decode at a set rate, polled once a second on a clock of the test's own."""

    def __init__(self, servers: int = 2) -> None:
        self.now = 1_000_000.0
        self.full = {f"s{n}": True for n in range(servers)}
        self.rate = {f"s{n}": 1000.0 for n in range(servers)}
        self.states = {
            name: ServerState(
                host="here",
                name=name,
                url="",
                phase=ServerPhase.READY,
                since=self.now,
                launches=1,
                gpu_uuid=name,
                decode_tokens=0,
            )
            for name in self.full
        }
        self.energy_j = 0.0
        self.slices = Slices(lambda server: self.full[server], lambda: 30.0)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            self.energy_j += 500.0
            for name, state in self.states.items():
                tokens = (state.decode_tokens or 0) + round(self.rate[name])
                self.states[name] = replace(state, decode_tokens=tokens, taken_at=self.now)
            gpus = tuple(
                GpuSample(host="here", index=0, uuid=name, name="H", taken_at=self.now, energy_j=self.energy_j)
                for name in self.states
            )
            self.slices.hear(tuple(self.states.values()), gpus, self.now)

    def restart(self, server: str, rate: float) -> None:
        state = self.states[server]
        self.states[server] = replace(state, launches=state.launches + 1, since=self.now, decode_tokens=0)
        self.rate[server] = rate


def verdict_after(clock: Clockwork, trial: Trial, seconds: float) -> Verdict | None:
    """The last verdict that came within these seconds."""
    last = None
    for _ in range(round(seconds)):
        clock.run(1)
        last = trial.verdict() or last
    return last


def test_a_minute_after_warm_up_the_verdict_is_there() -> None:
    clock = Clockwork()
    clock.run(200)
    clock.restart("s0", 1800.0)
    trial = Trial(clock.slices, ["s1"])
    trial.begin(clock.states["s0"], flags_since=0.0)
    first = verdict_after(clock, trial, 20)
    assert first is not None and "Warming up for 30 s" in first.sentence
    early = verdict_after(clock, trial, 60)
    assert early is not None and early.effects == ()
    assert "Measuring" in early.sentence
    verdict = verdict_after(clock, trial, 30)
    assert verdict is not None and verdict.word == "better"
    tokens, power, joules, _ = verdict.effects
    assert tokens.change is not None and abs(tokens.change - 0.8) < 0.01
    assert power.before is not None and abs(power.before - 500.0) < 1.0
    assert joules.after is not None and abs(joules.after - 500 / 1800) < 0.001
    assert not trial.judging


def test_warm_up_and_a_server_that_is_not_full_are_left_out() -> None:
    clock = Clockwork(servers=1)
    clock.run(29)
    assert clock.slices.of("s0") == ()  # rows in flight are all young until one has come through
    clock.run(30)
    (first, *_) = clock.slices.of("s0")
    assert first.number * 10 >= clock.states["s0"].since + 30
    known = len(clock.slices.of("s0"))
    clock.full["s0"] = False  # the end of the job: too few rows left
    clock.run(60)
    assert len(clock.slices.of("s0")) <= known + 1
    assert all(abs((each.tokens_per_s or 0) - 1000) < 1 for each in clock.slices.of("s0"))


def test_flags_before_the_last_change_are_not_its_past() -> None:
    clock = Clockwork()
    clock.run(200)
    clock.restart("s0", 500.0)
    changed_at = clock.now
    clock.run(150)
    clock.restart("s0", 1000.0)
    trial = Trial(clock.slices, ["s1"])
    trial.begin(clock.states["s0"], flags_since=changed_at)
    verdict = verdict_after(clock, trial, 110)
    assert verdict is not None and verdict.word == "better"
    assert verdict.effects[0].before is not None and abs(verdict.effects[0].before - 500.0) < 1


def test_a_server_changed_again_ends_the_judging() -> None:
    for server in ("s0", "s1"):  # the changed one; the last of the control group
        clock = Clockwork()
        clock.run(200)
        clock.restart("s0", 1800.0)
        trial = Trial(clock.slices, ["s1"])
        trial.begin(clock.states["s0"], flags_since=0.0)
        trial.leave_out(server)
        assert verdict_after(clock, trial, 120) is None


def test_two_crashes_or_a_server_given_up_take_the_flags_back_and_a_restart_does_not() -> None:
    clock = Clockwork()
    trial = Trial(clock.slices, ["s1"])
    state = clock.states["s0"]
    trial.begin(state, flags_since=0.0)
    assert not trial.crashed(state)
    assert not trial.crashed(replace(state, phase=ServerPhase.BACKOFF))
    assert not trial.crashed(replace(state, launches=2))
    assert trial.crashed(replace(state, launches=2, phase=ServerPhase.BACKOFF))
    assert trial.crashed(replace(state, phase=ServerPhase.GIVEN_UP))
    trial.restarted(replace(state, launches=2))
    assert not trial.crashed(replace(state, launches=2, phase=ServerPhase.BACKOFF))
    assert not trial.crashed(replace(clock.states["s1"], phase=ServerPhase.GIVEN_UP))
