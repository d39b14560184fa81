"""Words for simulated answers: the same for the same prompt, varied enough to be no loop, and meaning nothing."""

from __future__ import annotations

import random

_WORDS = [
    "the",
    "a",
    "one",
    "each",
    "some",
    "this",
    "that",
    "first",
    "next",
    "last",
    "small",
    "large",
    "quiet",
    "open",
    "plain",
    "simple",
    "careful",
    "early",
    "late",
    "number",
    "answer",
    "question",
    "reason",
    "step",
    "result",
    "case",
    "value",
    "line",
    "point",
    "part",
    "side",
    "way",
    "time",
    "place",
    "light",
    "water",
    "paper",
    "river",
    "window",
    "garden",
    "letter",
    "table",
    "morning",
    "train",
    "bridge",
    "market",
    "story",
    "winter",
    "engine",
    "signal",
    "garden",
    "takes",
    "gives",
    "shows",
    "holds",
    "turns",
    "keeps",
    "finds",
    "makes",
    "leads",
    "follows",
    "carries",
    "counts",
    "adds",
    "compares",
    "begins",
    "ends",
    "of",
    "in",
    "on",
    "under",
    "over",
    "between",
    "with",
    "without",
    "after",
    "before",
    "because",
    "while",
    "so",
    "then",
    "also",
    "only",
    "still",
    "even",
]


def words(seed: int, count: int) -> str:
    """About `count` tokens of text: one word a token, in sentences."""
    chance = random.Random(seed)
    drawn = chance.choices(_WORDS, k=max(1, count))
    at = 0
    while at < len(drawn):
        drawn[at] = drawn[at].capitalize()
        end = min(at + chance.randint(5, 14), len(drawn) - 1)
        drawn[end] += "."
        at = end + 1
    return " ".join(drawn)


def loop(count: int) -> str:
    """An answer that got stuck."""
    return "and again the same words " * max(40, count // 5)
