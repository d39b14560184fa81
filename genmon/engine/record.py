"""What the engine writes into the run log: states, attempts and commands turned into its records.

Counters become what was gained since the sample before, so that sums over any stretch of the log are exact, also
across restarts (a counter that went backwards has started anew at 0).
"""

from __future__ import annotations

import hashlib
import socket
import time
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from genmon import __version__
from genmon.commands import Command
from genmon.config.schema import RunConfig
from genmon.engine.attempts import Attempt
from genmon.engine.hosts import HostInfo
from genmon.fleet.process import masked
from genmon.runlog.origin import git_revision, public_config
from genmon.runlog.records import (
    ChangeRecord,
    CommandRecord,
    GpuReading,
    Launch,
    Record,
    Request,
    Run,
    RunEnd,
    ServerReading,
    TellRecord,
)
from genmon.state import FlagChange, GpuSample, ServerPhase, ServerState, State, Tell

_GAP_S = 0.5
"""Samples that come closer (servers are looked at more often while they restart) are left out."""
_OVER = frozenset({ServerPhase.STOPPING, ServerPhase.STOPPED, ServerPhase.BACKOFF, ServerPhase.GIVEN_UP})
_PLACES = frozenset({"host", "port", "nccl-port"})
"""Flags that say where a launch is, and differ between launches that are the same."""


class Log(Protocol):
    """Where records go."""

    @property
    def trouble(self) -> str | None:
        """What keeps the log from being written, in one sentence."""
        ...

    def put(self, record: Record) -> None:
        """Write a record down; returns at once."""
        ...


class Recorder:
    """Writes one run down. Without a log it does nothing."""

    def __init__(self, config: RunConfig, directory: Path, log: Log | None, run: str = "") -> None:
        """`directory` is the job directory, `run` the key of the run in the log."""
        self._config, self._directory, self._log, self._run = config, directory, log, run
        self._begun = False
        self._launches: dict[str, Launch] = {}
        self._serving: dict[str, str] = {}
        """The launch that each GPU serves, by UUID."""
        self._gpus: dict[str, GpuSample] = {}
        self._energy_j: dict[str, float] = {}
        self._servers: dict[str, ServerState] = {}
        self._sampled_at = 0.0
        self._tells: dict[str, TellRecord] = {}
        self._changes: dict[int, FlagChange] = {}

    @property
    def trouble(self) -> str | None:
        """What keeps the log from being written, in one sentence; None when all is well."""
        return self._log.trouble if self._log else None

    def begin(self, state: State, info: HostInfo | None) -> None:
        """Write down what the run is; `info` is None when the host could not be opened."""
        if self._log is None or self._begun:
            return
        self._begun = True
        here = Path.cwd()
        self._log.put(
            Run(
                run=self._run,
                name=self._config.name,
                model=self._config.model.name,
                host=socket.gethostname(),
                simulated=state.simulated,
                genmon=__version__,
                sglang=info.sglang if info else None,
                git_revision=git_revision(here),
                project_directory=str(here),
                job_directory=str(self._directory),
                config=public_config(self._config),
                started_at=state.started_at,
                rows_total=state.job.rows_total,
            )
        )

    def saw(self, state: State, *, last: bool = False) -> None:
        """Write down what is new in a state; `last` takes samples however close."""
        if self._log is None or not self._begun:
            return
        for server in state.servers:
            self._launch(server)
        if last or state.taken_at - self._sampled_at >= _GAP_S:
            self._sampled_at = state.taken_at
            for gpu in state.gpus:
                self._gpu(gpu)
            for server in state.servers:
                self._server(server, state.taken_at)
        self._tell(state.tells, state.taken_at)
        for change in state.changes:
            self._change(change)

    def attempt(self, attempt: Attempt) -> None:
        """Write down an attempt at a row."""
        if self._log is None:
            return
        made = attempt.made
        self._log.put(
            Request(
                run=self._run,
                row_id=attempt.row.id,
                position=attempt.row.position,
                attempt=attempt.number,
                launch=attempt.launch,
                simulated=self._config.simulation is not None,
                started_at=attempt.started_at,
                latency_s=attempt.latency_s,
                outcome=attempt.fate.value,
                answer_class=made.answer_class.value if made else None,
                finish_reason=made.answers[-1].finish_reason if made and made.answers else None,
                prompt_tokens=made.prompt_tokens if made else None,
                completion_tokens=made.completion_tokens if made else None,
                reasoning_tokens=made.reasoning_tokens if made else None,
                acceptance_length=made.acceptance_length if made else None,
                trouble=attempt.trouble,
            )
        )

    def command(self, command: Command, by: str, effect: str, *, obeyed: bool) -> None:
        """Write down a command, and what it did or why it was refused."""
        if self._log is None:
            return
        self._log.put(
            CommandRecord(
                run=self._run,
                given_at=time.time(),
                given_by=by,
                command=type(command).__name__,
                arguments=msgspec.json.encode(command).decode(),
                obeyed=obeyed,
                effect=effect,
            )
        )

    def end(self, state: State) -> None:
        """Write down how the run ended."""
        if self._log is None:
            return
        self.begin(state, None)
        self.saw(state, last=True)
        for launch in self._launches.values():
            if launch.end_reason is None:
                ended_at = launch.ended_at or state.taken_at
                self._log.put(replace(launch, ended_at=ended_at, end_reason="the run ended"))
        self._log.put(
            RunEnd(run=self._run, ended_at=state.taken_at, outcome=state.phase.value, reason=state.reason or "")
        )

    def _put(self, record: Record) -> None:
        if self._log is not None:
            self._log.put(record)

    def _launch(self, server: ServerState) -> None:
        """Write down a launch when it is new, and again whenever more is known of it."""
        if not server.launches and not server.external:
            return
        name = f"{server.name}#{server.launches}"
        known = self._launches.get(server.name)
        if known is None or known.launch != name:
            if known is not None and known.ended_at is None:
                self._put(replace(known, ended_at=server.launched_at or server.since, end_reason=server.reason))
            known = None
        now = _as_launch(self._run, name, server, known)
        if now != known:
            self._launches[server.name] = now
            self._put(now)
        if server.gpu_uuid:
            self._serving[server.gpu_uuid] = name

    def _gpu(self, gpu: GpuSample) -> None:
        before = self._gpus.get(gpu.uuid)
        if before is not None and gpu.taken_at <= before.taken_at:
            return
        gained = None
        if gpu.energy_j is not None:
            counted = self._energy_j.get(gpu.uuid)
            gained = None if counted is None else gpu.energy_j - (counted if gpu.energy_j >= counted else 0.0)
            self._energy_j[gpu.uuid] = gpu.energy_j
        self._gpus[gpu.uuid] = gpu
        self._put(
            GpuReading(
                run=self._run,
                taken_at=gpu.taken_at,
                host=gpu.host,
                gpu_uuid=gpu.uuid,
                gpu_index=gpu.index,
                gpu_name=gpu.name,
                launch=self._serving.get(gpu.uuid),
                simulated=gpu.simulated,
                seconds=None if before is None else gpu.taken_at - before.taken_at,
                energy_j=gained,
                power_w=gpu.power_w,
                power_instant_w=gpu.power_instant_w,
                power_limit_w=gpu.power_limit_w,
                power_default_limit_w=gpu.power_default_limit_w,
                sm_clock_mhz=gpu.sm_clock_mhz,
                temperature_c=gpu.temperature_c,
                utilization=gpu.utilization,
                memory_used_b=gpu.memory_used_b,
                memory_total_b=gpu.memory_total_b,
                reasons=gpu.reasons,
                trouble=gpu.trouble,
            )
        )

    def _server(self, server: ServerState, now: float) -> None:
        """A sample; what an answer to a poll tells is left out when no new answer came."""
        before = self._servers.get(server.name)
        polled = server.taken_at is not None and (before is None or server.taken_at != before.taken_at)
        seconds, tokens = _gained(before, server) if polled else (None, None)
        if polled or before is None:
            self._servers[server.name] = server
        self._put(
            ServerReading(
                run=self._run,
                taken_at=now,
                launch=f"{server.name}#{server.launches}",
                simulated=server.simulated,
                phase=server.phase.value,
                seconds=seconds,
                tokens=tokens,
                tokens_per_s=server.tokens_per_s if polled else None,
                in_flight=server.in_flight,
                running=server.running if polled else None,
                queued=server.queued if polled else None,
                acceptance_length=server.acceptance_length if polled else None,
                kv_usage=server.kv_usage if polled else None,
                mamba_usage=server.mamba_usage if polled else None,
            )
        )

    def _tell(self, tells: tuple[Tell, ...], now: float) -> None:
        for tell in tells:
            known = self._tells.get(tell.id)
            record = TellRecord(
                run=self._run,
                tell=tell.id,
                level=tell.level.value,
                sentence=tell.sentence,
                server=tell.server,
                mend=tell.mend,
                evidence=tell.evidence,
                followed=tell.followed,
                since_at=tell.since,
                gone_at=None,
            )
            if known is None or _gist(known) != _gist(record):
                self._tells[tell.id] = record
                self._put(record)
        there = {tell.id for tell in tells}
        for id in [id for id in self._tells if id not in there]:
            self._put(replace(self._tells.pop(id), gone_at=now))

    def _change(self, change: FlagChange) -> None:
        known = self._changes.get(change.id)
        if known is not None and replace(known, stage=change.stage) == change:
            return
        self._changes[change.id] = change
        verdict = change.verdict
        self._put(
            ChangeRecord(
                run=self._run,
                change=change.id,
                what=change.what,
                given_by=change.by,
                servers=change.servers,
                flags=change.flags,
                canary=change.canary,
                started_at=change.started_at,
                ended_at=change.ended_at,
                outcome=change.outcome,
                rolled_back=change.rolled_back,
                verdict=verdict.word if verdict else None,
                verdict_sentence=verdict.sentence if verdict else None,
                verdict_settled=verdict.settled if verdict else None,
                effects=(*verdict.effects, *verdict.each) if verdict else (),
                control=verdict.control if verdict else (),
            )
        )


def _gist(tell: TellRecord) -> tuple[object, ...]:
    """What must change for a tell to be written anew; its evidence moves every second."""
    return tell.since_at, tell.level, tell.followed


def _as_launch(run: str, name: str, server: ServerState, known: Launch | None) -> Launch:
    """A launch with what a state tells; what was known and is not told any more stays."""
    started_at = known.started_at if known else server.launched_at or server.since
    ready_s, ended_at, end_reason = (known.ready_s, known.ended_at, known.end_reason) if known else (None, None, None)
    ready = server.phase is ServerPhase.READY
    if ready and ready_s is None and not server.external:
        ready_s = max(0.0, server.since - started_at)
    if server.phase in _OVER and ended_at is None:
        ended_at, end_reason = server.since, server.reason
    elif ready:
        ended_at = end_reason = None
    argv = masked(server.argv) if server.argv else known.argv if known else ()
    flags = launch_flags(argv)
    return Launch(
        run=run,
        launch=name,
        server=server.name,
        number=server.launches,
        host=server.host,
        gpu_index=server.gpu_index,
        gpu_uuid=server.gpu_uuid,
        simulated=server.simulated,
        external=server.external,
        sglang=server.version or (known.sglang if known else None),
        pid=server.pid or (known.pid if known else None),
        argv=argv,
        flags=flags,
        flag_set=flag_set(flags),
        mtp=server.mtp if server.mtp is not None else known.mtp if known else None,
        cap=server.cap if server.cap is not None else known.cap if known else None,
        started_at=started_at,
        ready_s=ready_s,
        ended_at=ended_at,
        end_reason=end_reason,
    )


def launch_flags(argv: tuple[str, ...]) -> dict[str, str]:
    """The flags of a launch by name, but for where it listens; true for one without a value."""
    flags: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in argv:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            values = flags[name] = [value] if value else []
        elif values is not None:
            values.append(word)
    return {name: " ".join(values) or "true" for name, values in flags.items() if name not in _PLACES}


def flag_set(flags: dict[str, str]) -> str:
    """A short name for launch flags: six hex digits of their hash."""
    return hashlib.blake2b(msgspec.json.encode(sorted(flags.items())), digest_size=3).hexdigest()


def _gained(before: ServerState | None, now: ServerState) -> tuple[float | None, int | None]:
    """Seconds and tokens since the poll before; a new launch has decoded what its counter says."""
    if before is None or before.taken_at is None or now.taken_at is None or now.decode_tokens is None:
        return None, None
    if before.launches != now.launches or before.decode_tokens is None or now.decode_tokens < before.decode_tokens:
        return None, None if before.decode_tokens is None and before.launches == now.launches else now.decode_tokens
    return now.taken_at - before.taken_at, now.decode_tokens - before.decode_tokens
