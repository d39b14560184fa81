"""How a tell is worded: its sentence with the numbers filled in, its evidence, and the command behind its key."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import median

from genmon.commands import Restart, SetConcurrency
from genmon.figures import UNKNOWN
from genmon.state import Evidence, Tell, TellLevel
from genmon.tells.inputs import Input, written
from genmon.tells.normal import FIGURES, Band
from genmon.tells.signature import Value
from genmon.tells.subject import Subject
from genmon.tells.table import Give, Row

_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_PLACE = re.compile(r"\{(\w+)\}")
_UNITS = {"W": " W", "tokens/s": " tok/s", "J/token": " J/tok", "MHz": " MHz", "°C": " °C"}


def tell(row: Row, subjects: Sequence[Subject], since: float, *, prior: bool) -> Tell:
    """The tell of a rule that holds on these subjects; figures of several are their medians."""
    rule = row.rule
    servers = tuple(subject.server.name for subject in subjects if subject.server is not None)
    values = {name: _value(subjects, name, rule.window_s) for name in (*row.filled, *rule.shows)}
    words = {name: written(name, value, of=row.inputs) for name, value in values.items()} | {"who": _who(subjects)}
    sentence = fill(rule.says, words)
    return Tell(
        id=row.id,
        level=TellLevel.LOOK if prior else rule.level,
        sentence=sentence[:1].upper() + sentence[1:],
        since=since,
        server=servers[0] if len(servers) == 1 else None,
        mend=fill(rule.mend, words),
        servers=servers,
        evidence=tuple(_evidence(name, value, row.inputs, subjects) for name, value in values.items()),
        wrong_if=fill(rule.wrong_if, words),
        prescription=_prescription(rule.give, subjects, servers),
    )


def fill(text: str, words: dict[str, str]) -> str:
    """Fill in the {places}; a part in [brackets] is left out when something in it is unknown."""

    def part(found: re.Match[str]) -> str:
        unknown = any(words.get(name, UNKNOWN) == UNKNOWN for name in _PLACE.findall(found[1]))
        return "" if unknown else found[1]

    return _PLACE.sub(lambda found: words[found[1]], _OPTIONAL.sub(part, text))


def band_words(name: str, band: Band, of: dict[str, Input]) -> str:
    """62 % to 84 % (prior: …), or (history, n=37)."""
    source = f"prior: {band.source}" if band.prior else f"history, n={band.n}"
    return f"{written(name, band.low, of=of)} to {written(name, band.high, of=of)} ({source})"


def _value(subjects: Sequence[Subject], name: str, window_s: float) -> Value:
    ask: Callable[[Subject], Value] = lambda subject: (  # noqa: E731
        subject.latest(name) if (value := subject.median(name, window_s)) is None else value
    )
    known = [value for subject in subjects if (value := ask(subject)) is not None]
    if not known:
        return None
    return known[0] if isinstance(known[0], bool) else median(known)


def _evidence(name: str, value: Value, of: dict[str, Input], subjects: Sequence[Subject]) -> Evidence:
    text = written(name, value, of=of)
    unit = _UNITS.get(of[name].unit, "") if value is not None else ""
    band = subjects[0].band(name) if name in (*FIGURES, "mtp_crossover") else None
    return Evidence(of[name].meaning, text + unit, None if band is None else band_words(name, band, of))


def _who(subjects: Sequence[Subject]) -> str:
    servers = [subject.server for subject in subjects if subject.server is not None]
    indices = [server.gpu_index for server in servers if server.gpu_index is not None]
    if servers and len(indices) == len(servers):
        names, kind = [str(index) for index in indices], "GPU"
    else:
        names, kind = [server.name for server in servers], "server"
    if len(names) == 1:
        return f"{kind} {names[0]}"
    return f"each of {kind}s {', '.join(names[:-1])} and {names[-1]}" if names else "the run"


def _prescription(
    give: Give | None, subjects: Sequence[Subject], servers: tuple[str, ...]
) -> Restart | SetConcurrency | None:
    """The command; None when there is none, or when a server is somebody else's."""
    if give is None:
        return None
    if give.concurrency is not None:
        return SetConcurrency(None if give.concurrency == "auto" else give.concurrency)
    if not servers or any(subject.server is not None and subject.server.external for subject in subjects):
        return None
    set_ = {name: value if isinstance(value, bool) else str(value) for name, value in give.set.items()}
    return Restart(servers=servers, mtp=give.mtp, set=set_, unset=tuple(give.unset))
