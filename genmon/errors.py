"""Every error that genmon raises on purpose.

GenmonError                 one sentence: what is wrong, where, what to do
├── ConfigError             the run file or an option is wrong (exit 2)
├── StartError              the run could not start (exit 3)
│   ├── JobLocked           another engine owns the job directory
│   └── InputChanged        the prompts are not those the job began with
├── Refused                 the engine will not obey a command, and why
├── LogError                the run log cannot be read or written
│   └── LogLocked           another process has it open
├── ServerError             one server's trouble; its rows go back to the queue
│   ├── ServerGone          connection refused, reset or cut
│   └── ServerBusy          5xx: it answered, and could not serve
└── RowRefused              the server says that this row can never work (4xx)
"""

from __future__ import annotations


class GenmonError(Exception):
    """Base of all errors with a sentence for the user; never shown with a traceback."""

    exit_code = 3


class ConfigError(GenmonError):
    """The run file or an option is wrong. The sentence names file, line and field."""

    exit_code = 2


class StartError(GenmonError):
    """The run could not start, or cannot go on."""


class JobLocked(StartError):
    """Another engine owns this job directory."""


class InputChanged(StartError):
    """The prompts are not those the job began with."""


class Refused(GenmonError):
    """The engine will not obey this command; the sentence says why."""


class LogError(GenmonError):
    """The run log cannot be read or written."""


class LogLocked(LogError):
    """Another process has the run log open; the sentence names it."""


class ServerError(GenmonError):
    """One server failed one request; the row is not at fault and goes back to the queue."""


class ServerGone(ServerError):
    """The connection was refused, reset or cut."""


class ServerBusy(ServerError):
    """The server answered 5xx, 429, or something that is not a completion."""


class RowRefused(GenmonError):
    """The server answered 4xx: this row can never work as it is. The message is the server's own."""
