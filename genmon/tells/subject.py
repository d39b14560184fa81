"""What a signature asks of: one server with its GPU, or the run as a whole."""

from __future__ import annotations

from genmon.figures import duration
from genmon.state import ServerState
from genmon.tells.inputs import SHARES, Reading, RunFacts
from genmon.tells.normal import Band, Normal, Setting
from genmon.tells.past import Past
from genmon.tells.signature import Value

_ANSWERS_KEPT = 200


class Subject:
    """The figures of one server (`server` set) or of the run; keeps account of what it was asked and did not know."""

    def __init__(self, facts: RunFacts, normal: Normal) -> None:
        self._facts, self._normal = facts, normal
        self.past = Past()
        self.server: ServerState | None = None
        self.gpu_name: str | None = None
        self.missing: set[str] = set()
        """Inputs that were asked for and not known, since `begin`."""
        self.prior = False
        """Whether an answer since `begin` was a prior."""

    def begin(self) -> None:
        """Forget what was asked."""
        self.missing.clear()
        self.prior = False

    def latest(self, name: str) -> Value:
        """The newest value."""
        if name == "mtp_crossover":
            return self.usual(name, "high")
        return self._note(name, self.past.latest(name))

    def median(self, name: str, over_s: float) -> Value:
        """The median over the last seconds."""
        if name == "mtp_crossover":
            return self.latest(name)
        return self._note(name, self.past.median(name, over_s), over_s)

    def rate(self, name: str, over_s: float) -> Value:
        """What it gained a second."""
        return self._note(name, self.past.rate(name, over_s), over_s)

    def usual(self, name: str, which: str) -> Value:
        """What is normal here."""
        band = self.band(name, mtp=False if which == "without_mtp" else None)
        if band is None:
            self.missing.add(f"what is normal of {name}")
            return None
        self.prior = self.prior or band.prior
        return {"low": band.low, "high": band.high}.get(which, band.usual)

    def band(self, name: str, mtp: bool | None = None) -> Band | None:
        """The band of an input, for the batch that runs now; `mtp` asks for another setting than the server's."""
        running = self.past.median("running", 10.0)
        runs_mtp = self.past.latest("mtp") if mtp is None else mtp
        if running is None or runs_mtp is None or self.server is None:
            return None
        setting = Setting(
            gpu_uuid=self.server.gpu_uuid,
            gpu_name=self.gpu_name,
            model=self._facts.model,
            quantisation=self._facts.quantisation,
            mtp=bool(runs_mtp),
            running=running,
        )
        return self._normal.crossover(setting) if name == "mtp_crossover" else self._normal.band(name, setting)

    def flag(self, name: str) -> Value:
        """Whether the server was launched with a flag; nobody knows of a server that somebody else runs."""
        argv = self.server.argv if self.server else ()
        if not argv:
            return self._note(f"launch flag {name}", None)
        if f"--{name}" not in argv:
            return False
        following = argv[argv.index(f"--{name}") + 1 :][:1]
        return following != ("0",)

    def _note(self, name: str, value: Value, over_s: float = 0.0) -> Value:
        if value is None:
            early = over_s and self.past.latest(name) is not None
            self.missing.add(f"{name} over {duration(over_s)}, too early" if early else name)
        return value


class LastAnswers:
    """Shares of answer classes among the last 200 answers, from counts that only grow."""

    def __init__(self) -> None:
        self._counts: list[tuple[int, dict[str, int]]] = [(0, dict.fromkeys(SHARES, 0))]

    def add(self, counts: dict[str, int], total: int) -> Reading:
        """Take in the counts so far; the shares as inputs."""
        if total < self._counts[-1][0]:
            self._counts = [(0, dict.fromkeys(SHARES, 0))]
        if total > self._counts[-1][0]:
            self._counts.append((total, counts))
        while len(self._counts) > 2 and total - self._counts[1][0] >= _ANSWERS_KEPT:
            self._counts.pop(0)
        first, before = self._counts[0]
        judged = total - first
        shares: Reading = {"answers_judged": judged}
        for name, count in counts.items():
            shares[f"{name}_share"] = (count - before[name]) / judged if judged else None
        return shares
