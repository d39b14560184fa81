"""What an answer is worth: its class, and the share of rubbish among the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from genmon.job.row import Answer
from genmon.state import AnswerClass

_LOOP_REPEATS = 6
_LOOP_CHARS = 800
_LOOP_CHARS_CUT = 400
"""An answer that was cut off in the middle of saying one thing is suspect sooner than one that came to its end:
people do ask for tables of thirty blank rows."""
_PERIOD_MAX_CHARS = 400
_TAIL_CHARS = _LOOP_REPEATS * _PERIOD_MAX_CHARS
_NEEDLE_CHARS = 24
RUBBISH = frozenset({AnswerClass.EMPTY, AnswerClass.UNCLOSED_THOUGHT, AnswerClass.LOOP})
"""Classes that are no training data: the row is tried again."""


def classify(answer: Answer, *, thinking: bool | None = None) -> AnswerClass:
    """The class of one answer.

    An answer cut by its token limit is truncated when it has content, an unclosed thought when all of it was
    thinking. `thinking` is what was asked for: without it reasoning alone is an empty answer.
    """
    if answer.finish_reason == "abort":
        return AnswerClass.ABORTED
    content, reasoning = answer.content.strip(), (answer.reasoning or "").strip()
    cut = answer.finish_reason == "length"
    if loops(content, cut=cut) or loops(reasoning, cut=cut):
        return AnswerClass.LOOP
    if not content and not answer.tool_calls:
        return AnswerClass.UNCLOSED_THOUGHT if reasoning and thinking is not False else AnswerClass.EMPTY
    if "<think>" in content and "</think>" not in content:
        return AnswerClass.UNCLOSED_THOUGHT
    if answer.finish_reason == "length":
        return AnswerClass.TRUNCATED
    return AnswerClass.COMPLETE


def loops(text: str, *, cut: bool = False) -> bool:
    """True when the text ends in something of up to 400 characters said over and over, and in nothing else.

    That is at least six times, and 800 characters in all (400 in a text that was `cut` by its token limit).
    """
    tail = text[-_TAIL_CHARS:]
    least = _LOOP_CHARS_CUT if cut else _LOOP_CHARS
    return len(tail) >= least and any(_repeats(tail, period, least) for period in _candidate_periods(tail))


def _candidate_periods(tail: str) -> Iterator[int]:
    """Distances at which the last few characters were said before: one of them is the period of a loop."""
    needle, end = tail[-_NEEDLE_CHARS:], len(tail) - 1
    while (found := tail.rfind(needle, 0, end)) >= 0:
        period = len(tail) - _NEEDLE_CHARS - found
        if period > _PERIOD_MAX_CHARS:
            return
        yield period
        end = found + _NEEDLE_CHARS - 1


def _repeats(tail: str, period: int, least: int) -> bool:
    """Whether the end of the text repeats with this period for long enough."""
    stretch = max(least, _LOOP_REPEATS * period)
    if stretch > len(tail):
        return False
    end = tail[-stretch:]
    return end[period:] == end[:-period]


class AnswerWindow:
    """The share of rubbish among the last answers, and whether it is past the threshold."""

    def __init__(self, window: int, pause_above: float) -> None:
        """`window` answers are looked at; `pause_above` is the share that trips, 1.0 never does."""
        self._last: deque[bool] = deque(maxlen=window)
        self._pause_above = pause_above
        self._rubbish = 0

    def add(self, answer_class: AnswerClass) -> None:
        """Take in one answer."""
        if len(self._last) == self._last.maxlen:
            self._rubbish -= self._last[0]
        self._last.append(answer_class in RUBBISH)
        self._rubbish += answer_class in RUBBISH

    def reset(self) -> None:
        """Forget what was seen."""
        self._last.clear()
        self._rubbish = 0

    @property
    def share(self) -> float:
        """Share of empty, unclosed and looping answers, 0 to 1."""
        return self._rubbish / len(self._last) if self._last else 0.0

    @property
    def tripped(self) -> bool:
        """Whether the share is past the threshold, judged from 40 answers on (or a full smaller window)."""
        enough = len(self._last) >= min(40, self._last.maxlen or 40)
        return enough and self.share > self._pause_above
