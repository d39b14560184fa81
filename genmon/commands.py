"""The command table: all that a view may ask of an engine, and what the engine answers.

A command that stops requests is planned first (`Plan`: which servers, the exact flag diff, rows in flight), shown,
and then given. A command that cannot be obeyed is refused with a sentence (`errors.Refused`).
"""

from __future__ import annotations

from msgspec import Struct


class Pause(Struct, frozen=True, tag=True):
    """Send nothing new; what is in flight goes on."""


class Resume(Struct, frozen=True, tag=True):
    """Send again."""


class Drain(Struct, frozen=True, tag=True):
    """Send nothing new, wait for what is in flight, then end the run."""


class Stop(Struct, frozen=True, tag=True):
    """End the run at once; rows in flight are generated again by the next run."""


class SetConcurrency(Struct, frozen=True, tag=True):
    """In-flight rows per server, at most the server's effective cap; None finds it for each server."""

    concurrency: int | None


class Restart(Struct, frozen=True, kw_only=True, tag=True):
    """Restart servers one after the other, with the same flags or with others, while the job goes on.

    MTP on or off is applied first, then `unset`, then `set`. Flag names are without their leading dashes; the
    value True is a flag that takes none.
    """

    servers: tuple[str, ...]
    """Their names, in the order in which they are restarted."""
    mtp: bool | None = None
    set: dict[str, str | bool] = {}
    unset: tuple[str, ...] = ()
    canary: bool = False
    """Change these servers only and judge them against the others; `Promote` or `Revert` follows."""


class CancelChange(Struct, frozen=True, tag=True):
    """Give up a flag change under way: servers not yet restarted keep their flags."""

    id: int


class Promote(Struct, frozen=True, tag=True):
    """Apply a canary's flags to all other servers."""

    id: int


class Revert(Struct, frozen=True, tag=True):
    """Give a change's servers their flags from before it."""

    id: int


class Dismiss(Struct, frozen=True, tag=True):
    """Take a tell off the screen until it comes up anew."""

    tell: str


Command = Pause | Resume | Drain | Stop | SetConcurrency | Restart | CancelChange | Promote | Revert | Dismiss


class ServerPlan(Struct, frozen=True, kw_only=True):
    """What a command would do to one server."""

    server: str
    before: tuple[str, ...]
    """Its launch flags now, one element a flag with its value."""
    after: tuple[str, ...]
    in_flight: int
    """Rows that would be waited for, and sent again when they take too long."""


class Plan(Struct, frozen=True, kw_only=True):
    """What a command would do, before anyone agrees to it."""

    sentence: str
    servers: tuple[ServerPlan, ...] = ()
