"""What an answer is worth: its class, and the share of rubbish among the last ones."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

from genmon.job.row import Answer
from genmon.state import AnswerClass

_TAIL_CHARS = 2000
_GATE_RATIO = 0.14
"""Tails that zlib makes smaller than this are looked at closely. Prose and code stay above 0.25."""
_LOOP_MIN_CHARS = 400
_LOOP_MIN_REPEATS = 6
_NEEDLE_CHARS = 24
_CANDIDATES = 12
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
    if loops(content) or loops(reasoning):
        return AnswerClass.LOOP
    if not content and not answer.tool_calls:
        return AnswerClass.UNCLOSED_THOUGHT if reasoning and thinking is not False else AnswerClass.EMPTY
    if "<think>" in content and "</think>" not in content:
        return AnswerClass.UNCLOSED_THOUGHT
    if answer.finish_reason == "length":
        return AnswerClass.TRUNCATED
    return AnswerClass.COMPLETE


def loops(text: str) -> bool:
    """True when the text ends in something said over and over: at least six times, 400 characters in all."""
    tail = text[-_TAIL_CHARS:]
    if len(tail) < _LOOP_MIN_CHARS:
        return False
    encoded = tail.encode()
    if len(zlib.compress(encoded, 1)) > _GATE_RATIO * len(encoded):
        return False
    return any(_repeats(tail, period) for period in _candidate_periods(tail))


def _candidate_periods(tail: str) -> Iterator[int]:
    """Distances at which the last few characters were said before: one of them is the period of a loop."""
    needle, end = tail[-_NEEDLE_CHARS:], len(tail) - 1
    for _ in range(_CANDIDATES):
        found = tail.rfind(needle, 0, end)
        if found < 0:
            return
        yield len(tail) - _NEEDLE_CHARS - found
        end = found + _NEEDLE_CHARS - 1


def _repeats(tail: str, period: int) -> bool:
    """Whether the end of the text repeats with this period for long enough."""
    stretch = max(_LOOP_MIN_CHARS, _LOOP_MIN_REPEATS * period)
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
