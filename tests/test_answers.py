"""What an answer is worth: classes, loops against long honest repetition, the share that pauses a run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmon.job.answers import RUBBISH, AnswerWindow, classify, loops
from genmon.job.row import Answer, Json
from genmon.state import AnswerClass

CALL: list[Json] = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def answer(
    content: str = "Yes.", reasoning: str | None = None, finish: str = "stop", tool_calls: list[Json] | None = None
) -> Answer:
    return Answer(content=content, reasoning=reasoning, finish_reason=finish, tool_calls=tool_calls)


@pytest.mark.parametrize(
    ("given_answer", "thinking", "expected"),
    [
        (answer(), None, AnswerClass.COMPLETE),
        (answer(reasoning="Hm."), True, AnswerClass.COMPLETE),
        (answer("", tool_calls=CALL, finish="tool_calls"), None, AnswerClass.COMPLETE),
        (answer("<think>Hm.</think>Yes."), None, AnswerClass.COMPLETE),
        (answer(finish="length"), None, AnswerClass.TRUNCATED),
        (answer(reasoning="Hm.", finish="length"), True, AnswerClass.TRUNCATED),
        (answer(""), None, AnswerClass.EMPTY),
        (answer(" \n\t"), True, AnswerClass.EMPTY),
        (answer("", finish="length"), None, AnswerClass.EMPTY),
        (answer("", reasoning="Hm."), False, AnswerClass.EMPTY),
        (answer("", reasoning="Hm."), None, AnswerClass.UNCLOSED_THOUGHT),
        (answer("", reasoning="Hm.", finish="length"), True, AnswerClass.UNCLOSED_THOUGHT),
        (answer("<think>Hm. So"), True, AnswerClass.UNCLOSED_THOUGHT),
        (answer("<think>Hm. So", finish="length"), None, AnswerClass.UNCLOSED_THOUGHT),
        (answer("Half an ans", finish="abort"), None, AnswerClass.ABORTED),
        (answer("", finish="abort"), None, AnswerClass.ABORTED),
        (answer("no " * 300), None, AnswerClass.LOOP),
        (answer("no " * 150), None, AnswerClass.COMPLETE),
        (answer("no " * 150, finish="length"), None, AnswerClass.LOOP),
        (answer("Yes.", reasoning="Wait, but then again. " * 40), True, AnswerClass.LOOP),
        (answer("", reasoning="Wait, but then again. " * 40, finish="length"), True, AnswerClass.LOOP),
    ],
)  # fmt: skip
def test_classes(given_answer: Answer, thinking: bool | None, expected: AnswerClass) -> None:
    assert classify(given_answer, thinking=thinking) is expected


def test_only_what_is_no_training_data_is_rubbish() -> None:
    assert {AnswerClass.EMPTY, AnswerClass.UNCLOSED_THOUGHT, AnswerClass.LOOP} == RUBBISH


WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room"
)


def prose(seed: int, length: int) -> str:
    dice = random.Random(seed)
    return " ".join(dice.choices(WORDS.split(), k=length))


@settings(max_examples=60, deadline=None)
@given(
    phrase=st.text(min_size=1, max_size=120).filter(str.strip),
    seed=st.integers(0, 99),
    cut=st.integers(0, 100),
)
def test_a_phrase_said_over_and_over_is_a_loop_wherever_it_is_cut(phrase: str, seed: int, cut: int) -> None:
    said = phrase * (1 + 920 // len(phrase))
    assert loops(prose(seed, 200) + said[: len(said) - cut])
    assert loops((prose(seed, 200) + said[: len(said) - cut])[:-1])


@pytest.mark.parametrize(
    "unit",
    [
        "-" * 60 + "\n" + "x" * 50,
        "!",
        " the",
        "\n",
        "0",
        "哈",
        "好的，",
        "🙂",
        "I need to check this again. ",
        "Wait, maybe I should reconsider the problem from the start and look at each case in turn. ",
        "    return None\n",
        "| | |\n",
        "\\boxed{42}\n",
        "Let me verify: 3 + 4 = 7, and 7 + 4 = 11.\n\nSo the answer is 11.\n\n",
        prose(1, 45) + ". ",
    ],
)
def test_loops_of_one_token_and_of_many(unit: str) -> None:
    assert loops(prose(0, 300) + unit * max(8, 1 + 1000 // len(unit)))


def table() -> str:
    """A Markdown table of 80 like rows."""
    rows = (f"| {n:>3} | {n * n:>6} | {n * 7919 % 1000:>4} | yes | no | yes |" for n in range(80))
    return "| n | square | mod | a | b | c |\n|---|---|---|---|---|---|\n" + "\n".join(rows)


def times_table() -> str:
    return "\n".join(f"{a} × {b} = {a * b}" for a in range(1, 13) for b in range(1, 13))


def code() -> str:
    fields = "\n".join(
        f'    parser.add_argument("--option-{n}", type=int, default={n * 3}, help="")' for n in range(60)
    )
    return f"def main():\n{fields}\n    return parser\n"


def asserts() -> str:
    return "\n".join(f"    assert is_even({n}) is {n % 2 == 0}" for n in range(100))


def rows_as_json() -> str:
    return json.dumps([{"id": n, "name": f"user{n}", "active": True, "roles": ["reader"]} for n in range(60)], indent=2)


def html() -> str:
    return (
        "<ul>\n" + "\n".join(f'  <li class="item"><a href="/page/{n}">Page {n}</a></li>' for n in range(70)) + "\n</ul>"
    )


def song() -> str:
    verses = (
        f"{n} bottles of beer on the wall, {n} bottles of beer.\nTake one down and pass it around, {n - 1} bottles of "
        "beer on the wall.\n\n"
        for n in range(99, 60, -1)
    )
    return "".join(verses)


def count() -> str:
    return ", ".join(str(n) for n in range(1, 700))


def bits() -> str:
    dice = random.Random(3)
    return " ".join(f"{dice.getrandbits(8):08b}" for _ in range(250))


def digits() -> str:
    dice = random.Random(4)
    return "".join(dice.choices("0123456789", k=2500))


def dna() -> str:
    dice = random.Random(5)
    return "".join(dice.choices("ACGT", k=2500))


def steps() -> str:
    return "\n".join(f"Step {n}: add {n} to the sum, which is now {n * (n + 1) // 2}." for n in range(1, 60))


HONEST = [table, times_table, code, asserts, rows_as_json, html, song, count, bits, digits, dna, steps]


@pytest.mark.parametrize("text", HONEST, ids=lambda make: make.__name__)
def test_long_honest_repetition_is_no_loop(text: Callable[[], str]) -> None:
    assert not loops(text())


@pytest.mark.parametrize(
    "text",
    [
        "=" * 120,
        "ha" * 60,
        "-" * 80 + "\nTotal: 4",
        "\n".join(["* * *"] * 30),
        "1/3 = 0." + "3" * 200,
        "no " * 100,
        "|   |   |   |\n" * 40,
    ],
    ids=["rule", "laugh", "ruled total", "stars", "thirds", "a hundred noes", "blank table"],
)
def test_short_repetition_is_no_loop(text: str) -> None:
    assert not loops(prose(2, 300) + " " + text)


def test_a_stretch_of_repetition_that_ended_is_no_loop() -> None:
    assert not loops("no " * 500 + prose(3, 200))


def test_the_share_is_over_the_last_answers() -> None:
    window = AnswerWindow(100, 0.05)
    assert (window.share, window.tripped) == (0.0, False)
    for _ in range(39):
        window.add(AnswerClass.EMPTY)
    assert (window.share, window.tripped) == (1.0, False)
    window.add(AnswerClass.COMPLETE)
    assert (round(window.share, 6), window.tripped) == (0.975, True)
    for _ in range(95):
        window.add(AnswerClass.TRUNCATED)
    assert (round(window.share, 6), window.tripped) == (0.04, False)
    window.add(AnswerClass.LOOP)
    window.add(AnswerClass.UNCLOSED_THOUGHT)
    window.reset()
    assert (window.share, window.tripped) == (0.0, False)


@settings(max_examples=60, deadline=None)
@given(
    classes=st.lists(st.sampled_from(AnswerClass), max_size=150),
    size=st.integers(1, 60),
    above=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_the_share_is_what_counting_gives(classes: list[AnswerClass], size: int, above: float) -> None:
    window = AnswerWindow(size, above)
    for each in classes:
        window.add(each)
    last = classes[-size:]
    share = sum(each in RUBBISH for each in last) / len(last) if last else 0.0
    assert window.share == pytest.approx(share)
    assert window.tripped == (len(last) >= min(40, size) and share > above)
