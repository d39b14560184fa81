"""What a simulated request says: its thought, its answer and why it ended, whole or as far as it came."""

from __future__ import annotations

import math

from msgspec import Struct

from genmon.sim import text
from genmon.sim.decode import Request


class Said(Struct, frozen=True):
    """An answer in words, one a token. Nothing said is an empty list."""

    reasoning: list[str]
    content: list[str]
    finish: str
    reasoning_tokens: int

    def first(self, count: int) -> Said:
        """Its first `count` words."""
        left = max(0, count - len(self.reasoning))
        return Said(self.reasoning[:count], self.content[:left], self.finish, min(count, self.reasoning_tokens))


def said(request: Request) -> Said:
    """The whole answer of a finished request; of an aborted one what came until then."""
    whole = _whole(request)
    if request.aborted:
        part = whole.first(int(request.tokens))
        return Said(part.reasoning, part.content, "abort", part.reasoning_tokens)
    return whole


def verify_steps(request: Request) -> int:
    """Steps of the target model that its tokens took under speculation."""
    return max(1, math.ceil(request.completion_tokens / request.acceptance))


def _whole(request: Request) -> Said:
    tokens, seed, ends = request.length, request.seed, request.ends
    if request.fate == "empty":
        return Said([], [], "stop", 0)
    if request.fate == "loop":
        return Said([], text.loop(tokens), ends, 0)
    ends = "abort" if request.fate == "abort" else ends
    if not request.thinking:
        return Said([], text.words(seed, tokens), ends, 0)
    thought = tokens if request.fate == "unclosed" else min(request.thought, tokens)
    return Said(text.words(seed + 1, thought), text.words(seed, tokens - thought), ends, thought)
