"""What a sweep found, as it is kept on disk and printed as JSON."""

from __future__ import annotations

from msgspec import Struct

from genmon.config.schema import FlagValue


class Point(Struct, frozen=True, kw_only=True):
    """One flag set at one concurrency on one server. Rates are of that server; unknown is None."""

    variant: str
    mtp: bool
    changed: dict[str, FlagValue]
    concurrency: int
    server: str
    gpu_uuid: str | None
    gpu_name: str | None
    cap: int | None
    """Effective cap of the server."""
    tokens_per_s: float
    tokens_per_s_low: float
    tokens_per_s_high: float
    """95 % interval of the mean, from slices of the window."""
    slices: int
    seconds: float
    power_w: float | None = None
    """Mean over the window, from the energy counter."""
    power_limit_w: float | None = None
    joules_per_token: float | None = None
    acceptance_length: float | None = None
    ttft_s: float | None = None
    """Median time to the first token, of the streamed requests."""
    itl_s: float | None = None
    """Median time between tokens, of the streamed requests."""
    streams: int = 0
    tokens_per_row: float | None = None
    """Mean completion tokens of the rows that finished meanwhile; None when none did."""


class Skipped(Struct, frozen=True, kw_only=True):
    """A point that was not measured, and why."""

    variant: str
    concurrency: int | None
    reason: str


class Sweep(Struct, frozen=True, kw_only=True):
    """One sweep."""

    run: str
    model: str
    host: str
    at: float
    command: str
    genmon_version: str
    sglang_version: str | None
    simulated: bool
    gpus: int
    points: tuple[Point, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    rows_left: int | None = None
    tokens_per_row: float | None = None
    """Mean completion tokens of the job's finished rows; before there are any, of the sweep's."""
