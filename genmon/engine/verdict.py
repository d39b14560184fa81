"""What a flag change brought, from slices of ten seconds: changed servers against their past and against the others.

Of each figure the logarithm is taken, from it the unchanged servers' course over the same slices, and then the
difference between after and before. Neighbouring slices resemble each other, so the standard error is widened by
their correlation; and because two stretches of the same server under the same flags differ a little whatever their
length (measured on an H200: up to 2 % between windows), it is never taken as smaller than `_FLOOR`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean

from msgspec import Struct

from genmon.state import Effect, Verdict

SLICE_S = 10.0
NOT_YET = "no difference yet"
LOOKS = (6, 9, 12, 18, 24, 36, 48, 72, 96, 120)
"""Slices after the change, a minute to twenty minutes, at which a verdict is due: who looks at every slice, and stops
at the first that pleases, sees differences that are none."""
SLICES_MIN, SLICES_MAX = LOOKS[0], LOOKS[-1]
_MATTERS = 0.01
"""A smaller change of tokens per second is called no difference."""
_NO_DIFFERENCE = 0.025
"""The verdict is that there is none once the interval lies within this."""
_FLOOR = {True: 0.008, False: 0.012}
"""Smallest standard error of a logarithm of a ratio, with a control group and without."""
_CORRELATION_MAX = 0.8
_SURE = 0.99
"""One-sided, for the word; the interval shown is of 95 %."""
_SHOWN = 0.975


class Slice(Struct, frozen=True, kw_only=True):
    """One server at full load over ten seconds; `number` counts slices since the epoch."""

    number: int
    tokens_per_s: float | None = None
    power_w: float | None = None
    acceptance_length: float | None = None

    @property
    def joules_per_token(self) -> float | None:
        """Watts by tokens per second."""
        return self.power_w / self.tokens_per_s if self.power_w is not None and self.tokens_per_s else None


class Arm(Struct, frozen=True, kw_only=True):
    """One changed server, before its rows were drained and after it had warmed up."""

    server: str
    before: tuple[Slice, ...]
    after: tuple[Slice, ...]


_FIGURES: Mapping[str, Callable[[Slice], float | None]] = {
    "tokens_per_s": lambda each: each.tokens_per_s,
    "power_w": lambda each: each.power_w,
    "joules_per_token": lambda each: each.joules_per_token,
    "acceptance_length": lambda each: each.acceptance_length,
}


def judge(arms: Sequence[Arm], control: Mapping[str, Sequence[Slice]]) -> Verdict:
    """The verdict on a change.

    Args:
        arms: the changed servers.
        control: slices of the unchanged ones, over all of that time; none of them means before and after only.
    """
    control = {name: slices for name, slices in control.items() if all(_covers(slices, arm) for arm in arms)}
    fewest = min((len(arm.after) for arm in arms), default=0)
    if not arms or fewest < SLICES_MIN or min(len(arm.before) for arm in arms) < SLICES_MIN:
        hopeless = any(len(arm.before) < SLICES_MIN for arm in arms)
        return Verdict(word=NOT_YET, sentence=_measuring(arms), control=tuple(control), settled=hopeless)
    effects = tuple(_effect(name, arms, control) for name in _FIGURES)
    each = tuple(_effect(name, [arm], control, server=arm.server) for arm in arms if len(arms) > 1 for name in _FIGURES)
    word, settled = _word(_log_ratio("tokens_per_s", arms, control), fewest)
    return Verdict(
        word=word,
        sentence=_sentence(effects, arms, tuple(control)),
        effects=effects,
        each=each,
        control=tuple(control),
        settled=settled,
    )


class _Ratio(Struct, frozen=True):
    """A logarithm of after by before, with its standard error and degrees of freedom."""

    log: float
    error: float
    freedom: float

    def bounds(self, probability: float) -> tuple[float, float]:
        width = _student(probability, self.freedom) * self.error
        return self.log - width, self.log + width


def _word(ratio: _Ratio | None, slices: int) -> tuple[str, bool]:
    if ratio is None:
        return NOT_YET, False
    low, high = ratio.bounds(_SURE)
    if low > math.log1p(_MATTERS):
        return "better", True
    if high < math.log1p(-_MATTERS):
        return "worse", True
    low, high = ratio.bounds(_SHOWN)
    if slices >= SLICES_MAX or (low > -_NO_DIFFERENCE and high < _NO_DIFFERENCE):
        return "no difference", True
    return NOT_YET, False


def _log_ratio(figure: str, arms: Sequence[Arm], control: Mapping[str, Sequence[Slice]]) -> _Ratio | None:
    """Over all changed servers; their errors are taken as if they went together, as those of one workload do."""
    ratios = [_of_arm(figure, arm, control) for arm in arms]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return None
    error = max(fmean(ratio.error for ratio in known), _FLOOR[bool(control)])
    return _Ratio(fmean(ratio.log for ratio in known), error, min(ratio.freedom for ratio in known))


def _of_arm(figure: str, arm: Arm, control: Mapping[str, Sequence[Slice]]) -> _Ratio | None:
    course = _course(figure, arm, control)
    before, after = (_logs(figure, slices, course) for slices in (arm.before, arm.after))
    if min(len(before), len(after)) < SLICES_MIN:
        return None
    (mean_b, square_b, free_b), (mean_a, square_a, free_a) = _mean(before), _mean(after)
    error = math.sqrt(square_b + square_a)
    weight = square_b**2 / free_b + square_a**2 / free_a
    freedom = (square_b + square_a) ** 2 / weight if weight else free_b + free_a
    return _Ratio(mean_a - mean_b, error, freedom)


def _logs(figure: str, slices: Sequence[Slice], course: Mapping[int, float] | None) -> list[float]:
    logs = []
    for each in slices:
        value = _FIGURES[figure](each)
        if value and (course is None or each.number in course):
            logs.append(math.log(value) - (course[each.number] if course is not None else 0.0))
    return logs


def _course(figure: str, arm: Arm, control: Mapping[str, Sequence[Slice]]) -> dict[int, float] | None:
    """How the unchanged servers went, as a logarithm by slice; each against its own mean before the change."""
    if not control:
        return None
    first = {each.number for each in arm.before}
    found: dict[int, list[float]] = {}
    for slices in control.values():
        logs = {each.number: math.log(value) for each in slices if (value := _FIGURES[figure](each))}
        past = [log for number, log in logs.items() if number in first]
        for number, log in logs.items() if past else ():
            found.setdefault(number, []).append(log - fmean(past))
    return {number: fmean(logs) for number, logs in found.items()}


def _mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, its squared standard error widened by the correlation of neighbours, and degrees of freedom."""
    count, mean = len(values), fmean(values)
    off = [value - mean for value in values]
    square = sum(each * each for each in off)
    together = sum(one * other for one, other in pairwise(off))
    correlation = together / square if square else 0.0
    correlation = min(_CORRELATION_MAX, max(0.0, correlation + 1 / count))  # the estimate is 1/n too low
    widening = (1 + correlation) / (1 - correlation)
    return mean, square / (count - 1) / count * widening, max(2.0, count / widening - 1)


def _student(probability: float, freedom: float) -> float:
    """Quantile of Student's t, by the Cornish-Fisher expansion: within 1 % from 4 degrees of freedom on."""
    z, v = NormalDist().inv_cdf(probability), freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _covers(slices: Sequence[Slice], arm: Arm) -> bool:
    """Whether a control was at full load over enough of the same slices."""
    numbers = {each.number for each in slices if each.tokens_per_s}
    return all(sum(each.number in numbers for each in part) * 2 >= len(part) for part in (arm.before, arm.after))


def _effect(
    figure: str, arms: Sequence[Arm], control: Mapping[str, Sequence[Slice]], server: str | None = None
) -> Effect:
    before = [value for arm in arms for each in arm.before if (value := _FIGURES[figure](each)) is not None]
    after = [value for arm in arms for each in arm.after if (value := _FIGURES[figure](each)) is not None]
    ratio = _log_ratio(figure, arms, {} if figure == "acceptance_length" else control)
    low, high = ratio.bounds(_SHOWN) if ratio else (None, None)
    return Effect(
        figure=figure,
        server=server,
        before=fmean(before) if before else None,
        after=fmean(after) if after else None,
        change=math.expm1(ratio.log) if ratio else None,
        low=None if low is None else math.expm1(low),
        high=None if high is None else math.expm1(high),
        n_before=len(before),
        n_after=len(after),
    )


def _measuring(arms: Sequence[Arm]) -> str:
    if any(len(arm.before) < SLICES_MIN for arm in arms):
        return "No comparison: the servers had not been at full load for a minute before the change."
    seen_s = min((len(arm.after) for arm in arms), default=0) * SLICE_S
    return f"Measuring: {seen_s:.0f} of at least {SLICES_MIN * SLICE_S:.0f} s at full load."


def _sentence(effects: Sequence[Effect], arms: Sequence[Arm], control: Sequence[str]) -> str:
    tokens, power, joules, acceptance = effects
    parts = [f"tokens/s {_change(tokens)}"]
    for effect, unit, digits in ((power, "W", 0), (joules, "J/token", 3)):
        if effect.before is not None and effect.after is not None:
            parts.append(f"{effect.before:.{digits}f} → {effect.after:.{digits}f} {unit}")
    if acceptance.after is not None:
        parts.append(f"acceptance length {acceptance.after:.2f}")
    changed = ", ".join(arm.server for arm in arms)
    against = f"against {', '.join(control)} over the same time" if control else "before and after only"
    return f"{', '.join(parts)}; {changed} {against}, n = {tokens.n_before} and {tokens.n_after} slices of 10 s."


def _change(effect: Effect) -> str:
    if effect.change is None or effect.low is None or effect.high is None:
        return "–"
    return f"{_percent(effect.change)} (95 %: {_percent(effect.low)} to {_percent(effect.high)})"


def _percent(value: float) -> str:
    return f"{value * 100:+.1f} %".replace("-", "−")
