"""The verdict on known true effects: right, never reversed, and soon."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from genmon.engine.verdict import LOOKS, SLICES_MAX, Arm, Slice, judge
from genmon.state import Verdict

BEFORE = 60
RIGHT = {0.80: "better", 0.05: "better", 0.0: "no difference", -0.20: "worse"}


def series(seed: int, servers: int, effect: float, slices: int) -> list[list[Slice]]:
    """Servers at full load, the first changed after `BEFORE` slices.

    The noise is that of an H200: at C=32 `gen throughput` scatters by 0.28 from one log line (0.75 s) to the next,
    since rounds of prompts begin together; genmon's own slices of ten seconds at C=64 scatter by 4 %; windows under the
    same flags differ by 1 %, here a drift over a minute, half of it common to all servers. Cards of one kind differ by
    several per cent.
    """
    chance = random.Random(seed)
    levels = [1463 * (1 + chance.gauss(0, 0.04)) for _ in range(servers)]
    common, own = 0.0, [0.0] * servers
    found: list[list[Slice]] = [[] for _ in range(servers)]
    keep = math.exp(-10 / 60)
    fresh = math.sqrt(1 - keep**2)
    for number in range(slices):
        common = keep * common + fresh * chance.gauss(0, 0.007)
        for server in range(servers):
            own[server] = keep * own[server] + fresh * chance.gauss(0, 0.007)
            gain = math.log1p(effect) if server == 0 and number >= BEFORE else 0.0
            rate = levels[server] * math.exp(common + own[server] + gain + chance.gauss(0, 0.04))
            found[server].append(Slice(number=number, tokens_per_s=rate, power_w=604 * (1 + chance.gauss(0, 0.01))))
    return found


def follow(found: list[list[Slice]]) -> tuple[Verdict, int]:
    """The verdict as it comes about, looked at after every slice; and how many slices that took."""
    changed, *others = found
    verdict = None
    for after in LOOKS:
        arm = Arm(server="s0", before=tuple(changed[:BEFORE]), after=tuple(changed[BEFORE + 2 : BEFORE + 2 + after]))
        verdict = judge([arm], {f"s{1 + n}": other[: BEFORE + 2 + after] for n, other in enumerate(others)})
        if verdict.settled:
            return verdict, after
    assert verdict is not None
    return verdict, SLICES_MAX


def told(effect: float, servers: int, seeds: range) -> tuple[Counter[str], list[int]]:
    """How often each word was said, and the seconds it took, from the first slice after warm-up on."""
    said: Counter[str] = Counter()
    took = []
    for seed in seeds:
        verdict, slices = follow(series(seed, servers, effect, BEFORE + 2 + SLICES_MAX))
        said[verdict.word] += 1
        took.append(slices * 10)
    return said, sorted(took)


@pytest.mark.parametrize("effect", RIGHT)
def test_a_known_effect_is_found(effect: float) -> None:
    said, took = told(effect, 4, range(12))
    assert said[RIGHT[effect]] >= 11, said
    if abs(effect) > 0.1:
        assert took[6] <= 90


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("servers", [4, 2, 1])
@pytest.mark.parametrize("effect", RIGHT)
def test_the_verdict_is_right_95_times_of_100_and_never_reversed(effect: float, servers: int) -> None:
    said, took = told(effect, servers, range(1000, 1300))
    print(f"{effect:+.0%}, {servers} servers: {dict(said)}, median {took[150]} s, 95 % within {took[285]} s")
    assert said[RIGHT[effect]] >= 0.95 * 300, said
    if effect:
        assert said["worse" if effect > 0 else "better"] == 0


def test_what_is_common_to_all_servers_is_not_laid_at_the_changes_door() -> None:
    """Longer prompts slow all servers down by a fifth in the moment of the change: no difference to the others."""
    found = series(1, 4, 0.0, BEFORE + 2 + SLICES_MAX)
    slower = [
        [replace(each, tokens_per_s=(each.tokens_per_s or 0) * (0.8 if each.number >= BEFORE else 1)) for each in one]
        for one in found
    ]
    assert follow(slower)[0].word == "no difference"
    assert follow(slower[:1])[0].word == "worse"  # a server alone has no control group, and the sentence says so
    assert "before and after only" in follow(slower[:1])[0].sentence


def test_a_verdict_has_its_figures_for_all_and_for_each() -> None:
    one, two, *others = (tuple(slices) for slices in series(3, 4, 0.8, BEFORE + 20))
    faster = tuple(replace(each, acceptance_length=2.8) for each in one)
    arms = [
        Arm(server=name, before=slices[:BEFORE], after=slices[BEFORE + 2 :])
        for name, slices in (("s0", faster), ("s1", two))
    ]
    verdict = judge(arms, {"s2": others[0], "s3": others[1]})
    tokens, power, joules, acceptance = verdict.effects
    assert tokens.change is not None and 0.25 < tokens.change < 0.45  # one of two servers gained 80 %
    assert tokens.low is not None and tokens.high is not None and tokens.low < tokens.change < tokens.high
    assert (tokens.n_before, tokens.n_after) == (2 * BEFORE, 36)
    assert power.before is not None and 595 < power.before < 613
    assert joules.after is not None and joules.before is not None and joules.after < joules.before
    assert acceptance.after == pytest.approx(2.8)
    by_server = {effect.server: effect.change for effect in verdict.each if effect.figure == "tokens_per_s"}
    assert by_server["s0"] is not None and by_server["s0"] > 0.7
    assert by_server["s1"] is not None and abs(by_server["s1"]) < 0.1
    assert verdict.control == ("s2", "s3")


def test_too_little_before_the_change_is_said_and_not_guessed() -> None:
    (one,) = series(1, 1, 0.8, 100)
    verdict = judge([Arm(server="s0", before=tuple(one[:3]), after=tuple(one[70:]))], {})
    assert (verdict.word, verdict.effects, verdict.settled) == ("no difference yet", (), True)
    assert "before the change" in verdict.sentence
