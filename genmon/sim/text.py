"""Words for simulated answers: the same for the same prompt, varied enough to be no loop, and meaning nothing."""

from __future__ import annotations

import random

_TEXT = """
    the a one each some this that first next last small large quiet open plain simple careful early late
    number answer question reason step result case value line point part side way time place light water
    paper river window garden letter table morning train bridge market story winter engine signal takes
    gives shows holds turns keeps finds makes leads follows carries counts adds compares begins ends of in
    on under over between with without after before because while so then also only still even people house
    street hand eye voice stone field summer autumn spring evening kitchen music colour shape north south
    silver copper green yellow heavy gentle narrow round bright calm clever modern ancient common rare
    honest learns builds opens closes writes reads weighs measures draws lifts moves waits grows falls rises
    often seldom always never almost perhaps together alone again above below near beyond against through
    during until since whether although however therefore twice three seven eleven hundred island forest
    harbour ladder mirror clock pocket lantern basket needle teacher farmer sailor doctor painter neighbour
    brother sister child friend
"""
_WORDS = _TEXT.split()


def words(seed: int, count: int) -> list[str]:
    """`count` words in sentences, one word a token."""
    chance = random.Random(seed)
    drawn = chance.choices(_WORDS, k=count)
    at = 0
    while at < len(drawn):
        drawn[at] = drawn[at].capitalize()
        end = min(at + chance.randint(5, 14), len(drawn) - 1)
        drawn[end] += "."
        at = end + 1
    return drawn


def loop(count: int) -> list[str]:
    """An answer that got stuck: at least 200 words, so that it is one however short it was to be."""
    return ("and again the same words " * max(40, count // 5)).split()
