"""New flags on trial: taken back when their server crashes, and judged by what they brought."""

from __future__ import annotations

import time
from collections.abc import Iterable

from genmon.engine.slices import Slices
from genmon.engine.verdict import LOOKS, NOT_YET, SLICE_S, Arm, Slice, judge
from genmon.state import ServerPhase, ServerState, Verdict

_WATCHED_S = 300.0
"""So long a crash is laid at the new flags' door."""
_CRASHES = 2
"""So many, and they are taken back."""
_BEFORE_MAX = 60
"""Slices before the change that it is compared with: ten minutes."""
_DOWN = frozenset({ServerPhase.BACKOFF, ServerPhase.GIVEN_UP})


class Trial:
    """One change's servers since each of them got its new flags."""

    def __init__(self, slices: Slices, control: Iterable[str]) -> None:
        """`control` are the servers that are not changed."""
        self._slices = slices
        self._control = set(control)
        self._watched: dict[str, tuple[float, int]] = {}
        self._changed: dict[str, tuple[int, tuple[Slice, ...]]] = {}
        self._looked = -1
        self.judging = True

    @property
    def open(self) -> bool:
        """Whether anything may still come of it."""
        return bool(self._watched) or (self.judging and bool(self._changed))

    def begin(self, state: ServerState, flags_since: float) -> None:
        """A server serves with its new flags; those before it had since `flags_since`, Unix seconds."""
        self._watched[state.name] = (time.monotonic(), state.launches)
        past = [each for each in self._slices.of(state.name) if each.number * SLICE_S >= flags_since]
        self._changed[state.name] = (int(state.since // SLICE_S), tuple(past[-_BEFORE_MAX:]))

    def leave_out(self, server: str) -> None:
        """A server gets other flags again: what it does from now on says nothing about this change."""
        self._watched.pop(server, None)
        last_control = self._control == {server}
        self._control.discard(server)
        if server in self._changed or last_control:
            self.judging = False

    def restarted(self, state: ServerState) -> None:
        """A server was restarted with the same flags: that is no crash."""
        if state.name in self._watched:
            self._watched[state.name] = (self._watched[state.name][0], state.launches)

    def crashed(self, state: ServerState) -> bool:
        """Whether this server's new flags are to be taken back."""
        if state.name not in self._watched:
            return False
        since, launch = self._watched[state.name]
        if time.monotonic() - since > _WATCHED_S:
            del self._watched[state.name]
            return False
        crashes = state.launches - launch + (state.phase in _DOWN)
        return crashes >= _CRASHES or state.phase is ServerPhase.GIVEN_UP

    def verdict(self) -> Verdict | None:
        """A new verdict when one is due; None otherwise."""
        if not self.judging or not self._changed:
            return None
        arms = [
            Arm(server=server, before=before, after=tuple(s for s in self._slices.of(server) if s.number > ready))
            for server, (ready, before) in self._changed.items()
        ]
        seen = min(len(arm.after) for arm in arms)
        due = seen if seen < LOOKS[0] else max(look for look in LOOKS if look <= seen)
        if due == self._looked:
            return None
        self._looked = due
        if not seen and all(len(arm.before) >= LOOKS[0] for arm in arms):
            words = f"Warming up for {self._slices.warm_up_s:.0f} s, as long as a row takes"
            return Verdict(word=NOT_YET, sentence=f"{words}: until then all rows in flight are young.")
        verdict = judge(arms, {server: self._slices.of(server) for server in sorted(self._control)})
        self.judging = not verdict.settled
        return verdict
