"""The watch: states in, tells out. What must hold how long, what hides what, what nobody could check.

Pure: the only clock is `State.taken_at`, so a day can be watched in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from genmon.state import NotChecked, ServerPhase, ServerState, State, Tell, TellLevel, UsualPower
from genmon.tells.followed import Followed
from genmon.tells.inputs import SHARES, RunFacts, of_job, of_server
from genmon.tells.normal import Chain, Normal, Priors
from genmon.tells.subject import LastAnswers, Subject
from genmon.tells.table import Row
from genmon.tells.words import tell

FIRST_GRACE_S, GRACE_S = 10.0, 60.0
"""A server that has just become ready is warming up; after a restart caches and drafts take longer to settle."""
_HOUR_S = 3600.0
_ORDER = {TellLevel.ALARM: 0, TellLevel.WARN: 1, TellLevel.LOOK: 2}
_JOB = ""
"""The run as a whole, where a server's name stands."""


@dataclass
class _Standing:
    """Where one rule stands on one subject."""

    true_since: float | None = None
    false_since: float | None = None
    up_since: float | None = None
    prior: bool = False

    @property
    def live(self) -> bool:
        """Up, or about to be."""
        return self.up_since is not None or self.true_since is not None


class Watch:
    """Looks at every state, one a second, and says what is wrong."""

    def __init__(self, rows: Sequence[Row], facts: RunFacts, normal: Normal | None = None) -> None:
        """`rows` in the order of priority; `normal` before the published priors."""
        self._rows, self._facts = tuple(rows), facts
        self._ids = {row.id for row in rows}
        self._server_rows = tuple(row for row in rows if row.rule.scope == "server")
        self._job_rows = tuple(row for row in rows if row.rule.scope == "job")
        self._normal = Chain([*([normal] if normal else []), Priors()])
        self._subjects: dict[str, Subject] = {_JOB: Subject(facts, self._normal)}
        self._standings: dict[str, dict[str, _Standing]] = {row.id: {} for row in rows}
        """By rule, then by server."""
        self._failures: dict[str, deque[float]] = {}
        self._answers = LastAnswers()
        self._followed = Followed()
        self._mtp_best: float | None = None
        self._dismissed: dict[str, frozenset[str]] = {}
        self._missing: dict[str, dict[str, set[str]]] = {}
        self.tells: tuple[Tell, ...] = ()
        """What is wrong now: the most urgent first, and of those the first cause first."""
        self.not_checked: tuple[NotChecked, ...] = ()
        """Rules that could not be judged on servers that serve, and why."""

    def see(self, state: State) -> None:
        """Take in one state."""
        now = state.taken_at
        self._followed.see(self.tells, state)
        gpus = {sample.uuid: sample for sample in state.gpus}
        self._missing = {}
        for server in state.servers:
            subject = self._meet(server, state)
            gpu = gpus.get(server.gpu_uuid or "")
            subject.server, subject.gpu_name = server, gpu.name if gpu else None
            reading = of_server(state, server, gpu, self._facts)
            reading["failures_hour"] = sum(now - at < _HOUR_S for at in self._failures.get(server.name, ()))
            reading["mtp_best"] = self._mtp_best
            subject.past.add(now, reading)
            if server.mtp and (acceptance := subject.past.median("acceptance_length", 10.0)) is not None:
                self._mtp_best = max(self._mtp_best or 0.0, acceptance)
            self._judge(server.name, subject, self._server_rows, now, ready_s=_ready_s(server, now))
        job = self._subjects[_JOB]
        counts = {name: state.job.answers.get(answer_class, 0) for name, answer_class in SHARES.items()}
        answers = self._answers.add(counts, sum(state.job.answers.values()))
        job.past.add(now, of_job(state, self._facts) | answers)
        self._judge(_JOB, job, self._job_rows, now, ready_s=_HOUR_S)
        self._compose(state)

    def dismiss(self, id: str) -> bool:
        """Take a tell off until it comes up anew; False when it is not up."""
        if id not in {each.id for each in self.tells}:
            return False
        self._followed.forget(id)
        up = self._standings[id].items()
        self._dismissed[id] = frozenset(name for name, standing in up if standing.up_since is not None)
        self.tells = tuple(each for each in self.tells if each.id != id)
        return True

    def usual_power(self, server: str) -> UsualPower | None:
        """The watts that are normal for what a server does now; None when nobody knows, or it does nothing."""
        subject = self._subjects.get(server)
        limit_w = subject.past.latest("power_limit_w") if subject else None
        if subject is None or limit_w is None or not subject.past.latest("running"):
            return None
        band = subject.band("power_fraction")
        return None if band is None else UsualPower(band.low * limit_w, band.high * limit_w, band.n)

    def _meet(self, server: ServerState, state: State) -> Subject:
        """The subject of a server; what is past when it was launched anew is forgotten."""
        subject = self._subjects.get(server.name)
        if subject is None:
            subject = self._subjects[server.name] = Subject(self._facts, self._normal)
        before = subject.server
        if before is not None and before.launches != server.launches:
            subject.past.forget_seconds()
            for row in self._rows:
                if not row.rule.always:
                    self._standings[row.id].pop(server.name, None)
        failed = server.phase in (ServerPhase.BACKOFF, ServerPhase.GIVEN_UP)
        if before is not None and failed and before.phase is not server.phase:
            asked = any(change.ended_at is None and server.name in change.servers for change in state.changes)
            if not asked:
                self._failures.setdefault(server.name, deque(maxlen=100)).append(state.taken_at)
        return subject

    def _judge(self, name: str, subject: Subject, rows: Sequence[Row], now: float, ready_s: float | None) -> None:
        server = subject.server
        grace_s = GRACE_S if server is not None and server.launches > 1 else FIRST_GRACE_S
        warm = ready_s is not None and ready_s >= grace_s
        for row in rows:
            standings = self._standings[row.id]
            standing = standings.get(name) or standings.setdefault(name, _Standing())
            if not warm and not row.rule.always:
                self._settle(row, standing, False if ready_s is None else None, now)
                continue
            subject.begin()
            value = row.when.ask(subject)
            if value is None and ready_s is not None:
                self._missing.setdefault(row.id, {})[name] = set(subject.missing)
            if value:
                standing.prior = subject.prior
            if standing.up_since is not None and not value and row.until is not None:
                over = row.until.ask(subject)
                value = None if over is None else not over
            self._settle(row, standing, None if value is None else bool(value), now)

    def _settle(self, row: Row, standing: _Standing, value: bool | None, now: float) -> None:
        """Up after `hold_s` of true, down after `clear_s` of anything else."""
        if value:
            standing.false_since = None
            if standing.true_since is None:
                standing.true_since = now
            if standing.up_since is None and now - standing.true_since >= row.rule.hold_s:
                standing.up_since = standing.true_since
            return
        standing.true_since = None
        if standing.up_since is None:
            return
        if standing.false_since is None:
            standing.false_since = now
        if now - standing.false_since >= row.rule.clear_s:
            standing.up_since = standing.false_since = None

    def _compose(self, state: State) -> None:
        """Merge what stands by rule, without consequences and what was dismissed."""
        live = {
            rule: [name for name, standing in standings.items() if standing.live]
            for rule, standings in self._standings.items()
        }
        hidden = self._hidden(live)
        tells = []
        for row in self._rows:
            up = [name for name in live[row.id] if self._standings[row.id][name].up_since is not None]
            if not up:
                self._dismissed.pop(row.id, None)
                continue
            names = [name for name in up if row.id not in hidden[name] and row.id not in hidden[_JOB]]
            if not names or set(names) <= self._dismissed.get(row.id, frozenset()):
                continue
            self._dismissed.pop(row.id, None)
            standings = [self._standings[row.id][name] for name in names]
            since = min(standing.up_since for standing in standings if standing.up_since is not None)
            subjects = [self._subjects[name] for name in names]
            tells.append(tell(row, subjects, since, prior=any(standing.prior for standing in standings)))
        up_anew = {each.id for each in tells}
        pasts = {name: subject.past for name, subject in self._subjects.items()}
        tells += [each for each in self._followed.tells(state, pasts) if each.id not in up_anew]
        self.tells = tuple(sorted(tells, key=lambda each: _ORDER[each.level]))
        self.not_checked = tuple(
            NotChecked(row.id, _reason(row, self._missing[row.id])) for row in self._rows if row.id in self._missing
        )

    def _hidden(self, live: dict[str, list[str]]) -> dict[str, set[str]]:
        """By subject, the rules that are only consequences there. What is hidden itself hides nothing."""
        hidden: dict[str, set[str]] = {name: set() for name in self._subjects}
        shown = {(each.id, name) for each in self.tells for name in (each.servers or (_JOB,))}
        for row in (*self._job_rows, *self._server_rows):
            for name in live[row.id]:
                if not row.rule.hides or row.id in hidden[name] or row.id in hidden[_JOB]:
                    continue
                consequences = self._ids - {row.id} if "*" in row.rule.hides else set(row.rule.hides)
                if self._standings[row.id][name].up_since is None:
                    # A cause about to come up: its consequences wait for it, unless they are on the screen already.
                    consequences = {each for each in consequences if (each, name) not in shown}
                hidden[name] |= consequences
        return hidden


def _ready_s(server: ServerState, now: float) -> float | None:
    return now - server.since if server.phase is ServerPhase.READY else None


def _reason(row: Row, missing: dict[str, set[str]]) -> str:
    """not told: acceptance_length (the server's metrics page), on s0 and s1."""
    names = sorted({name for each in missing.values() for name in each})
    told = [f"{name} ({row.inputs[name].source})" if name in row.inputs else name for name in names]
    where = ", ".join(name for name in missing if name != _JOB)
    return f"not known: {', '.join(told)}" + (f"; on {where}" if where else "")
