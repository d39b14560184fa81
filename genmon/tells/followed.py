"""What became of a tell whose prescription was given: the change, and then its verdict, for a while."""

from __future__ import annotations

from msgspec.structs import replace

from genmon.commands import Restart, SetConcurrency
from genmon.state import FlagChange, State, Tell, TellLevel
from genmon.tells.past import Past

_SHOWN_S = 900.0
_BEFORE_S, _SETTLE_S, _AFTER_S = 180.0, 60.0, 180.0
_FIGURES = (("tokens/s", "tokens_per_s", 0), ("W", "power_w", 0), ("J/token", "joules_per_token", 2))
_SPANS_MIN = 3


class Followed:
    """Tells whose prescription was given, by rule."""

    def __init__(self) -> None:
        self._by_change: dict[str, tuple[Tell, int]] = {}
        self._by_concurrency: dict[str, tuple[Tell, float]] = {}
        self._seen: set[int] = set()
        self._concurrency: int | None = None

    def see(self, tells: tuple[Tell, ...], state: State) -> None:
        """Take in a state and the tells of the one before: which prescription was given since?"""
        for change in state.changes:
            if change.id in self._seen:
                continue
            self._seen.add(change.id)
            for tell in tells:
                if isinstance(tell.prescription, Restart) and _prescribed(tell.prescription, change):
                    self._by_change[tell.id] = (tell, change.id)
        if state.concurrency != self._concurrency:
            for tell in tells:
                given = tell.prescription
                if isinstance(given, SetConcurrency) and given.concurrency == state.concurrency:
                    self._by_concurrency[tell.id] = (tell, state.taken_at)
        self._concurrency = state.concurrency

    def forget(self, id: str) -> None:
        """Say no more about a rule's prescription."""
        self._by_change.pop(id, None)
        self._by_concurrency.pop(id, None)

    def tells(self, state: State, pasts: dict[str, Past]) -> tuple[Tell, ...]:
        """What following them did, or that it is being measured."""
        changes = {change.id: change for change in state.changes}
        found = []
        for id, (tell, number) in list(self._by_change.items()):
            change = changes.get(number)
            if change is None or (change.ended_at is not None and state.taken_at - change.ended_at > _SHOWN_S):
                del self._by_change[id]
            else:
                found.append(_told(tell, change.what, _outcome(tell, change, pasts)))
        for id, (tell, at) in list(self._by_concurrency.items()):
            if state.taken_at - at > _SHOWN_S:
                del self._by_concurrency[id]
            else:
                found.append(_told(tell, tell.mend or "concurrency", _before_and_after(tell, at, at, pasts)))
        return tuple(found)


def _prescribed(given: Restart, change: FlagChange) -> bool:
    """Whether a change is what was prescribed, on the same servers or some of them."""
    if not set(change.servers) <= set(given.servers):
        return False
    if given.mtp is not None:
        return f"MTP {'on' if given.mtp else 'off'}" in change.what
    names = [*given.set, *given.unset]
    return any(name in change.what for name in names) if names else change.what.startswith("restart")


def _told(tell: Tell, what: str, outcome: str) -> Tell:
    return replace(
        tell,
        level=TellLevel.LOOK,
        sentence=f"Followed ({what}): {outcome}",
        mend=None,
        prescription=None,
        followed=outcome,
    )


def _outcome(tell: Tell, change: FlagChange, pasts: dict[str, Past]) -> str:
    if change.ended_at is None:
        return change.stage or "under way"
    if change.rolled_back:
        return change.outcome or "rolled back"
    if change.verdict is not None and any(effect.change is not None for effect in change.verdict.effects):
        return change.verdict.sentence
    return _before_and_after(tell, change.started_at, change.ended_at, pasts)


def _before_and_after(tell: Tell, began_at: float, ended_at: float, pasts: dict[str, Past]) -> str:
    """What no verdict is about: half-minutes before it began, and from a minute after it ended."""
    parts, counts = [], (0, 0)
    for unit, name, digits in _FIGURES:
        before = [
            value for server in tell.servers for value in pasts[server].spans(name, began_at - _BEFORE_S, began_at)
        ]
        from_s, to_s = ended_at + _SETTLE_S, ended_at + _SETTLE_S + _AFTER_S
        after = [value for server in tell.servers for value in pasts[server].spans(name, from_s, to_s)]
        if min(len(before), len(after)) >= _SPANS_MIN * len(tell.servers):
            counts = (len(before), len(after))
            parts.append(f"{sum(before) / len(before):.{digits}f} → {sum(after) / len(after):.{digits}f} {unit}")
    if not parts:
        return "being measured"
    return f"{', '.join(parts)} a server (means of half-minutes, n = {counts[0]} and {counts[1]})"
