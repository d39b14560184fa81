"""What a command asks of launch flags: which servers, which flags, in which words; or why it cannot be."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from genmon.commands import Restart
from genmon.config.schema import MtpConfig
from genmon.engine.hosts import HostInfo
from genmon.errors import Refused
from genmon.fleet.flags.edit import edit, forbidden
from genmon.fleet.flags.flagset import FlagSet, diff, words
from genmon.state import ServerFlags, ServerPhase, ServerState


class Wish(Struct, frozen=True, kw_only=True):
    """The flags that servers are to have, in the order in which they get them."""

    what: str
    after: dict[str, FlagSet]
    command: Restart | None = None
    """What it was made from, for more servers; None for a way back."""
    canary: bool = False


class Fleet(Struct, frozen=True):
    """The servers as they are."""

    info: HostInfo
    states: Mapping[str, ServerState]
    flags: Mapping[str, FlagSet]
    mtp: MtpConfig

    def wish(self, command: Restart) -> Wish:
        """What `command` asks for. Raises `Refused`."""
        if not command.servers:
            raise Refused("No server is named.")
        after = {server: self._after(server, command) for server in dict.fromkeys(command.servers)}
        asked = command.mtp is not None or command.set or command.unset
        same = [server for server, flags in after.items() if not diff(self.flags[server], flags)]
        if asked and same:
            raise Refused(f"Nothing would change: {', '.join(same)} {_has(same)} these flags already.")
        return Wish(what=_what(command), after=after, command=command, canary=command.canary)

    def promoted(self, wish: Wish, changed: tuple[str, ...]) -> Wish:
        """The same for all other servers, where it changes anything. Raises `Refused`."""
        if wish.command is None:
            raise Refused("A way back cannot be promoted.")
        others = [server for server, state in self.states.items() if server not in changed and not state.external]
        after = {server: self._after(server, wish.command, lenient=True) for server in others}
        after = {server: flags for server, flags in after.items() if diff(self.flags[server], flags)}
        if not after:
            raise Refused("No other server is left to change.")
        return Wish(what=f"{wish.what} for all", after=after, command=wish.command)

    def reverted(self, wish: Wish, before: Mapping[str, FlagSet]) -> Wish:
        """The way back for the servers that still have a change's flags. Raises `Refused`."""
        after = {
            server: flags
            for server, flags in before.items()
            if self.flags[server] == wish.after[server] and diff(self.flags[server], flags)
        }
        if not after:
            raise Refused("No server has the flags of that change any more.")
        for server in after:
            self._refuse(server)
        return Wish(what=f"back from {wish.what}", after=after)

    def differences(self, wish: Wish) -> tuple[ServerFlags, ...]:
        """Each server's flags in words."""
        return tuple(
            ServerFlags(server=server, before=words(self.flags[server]), after=words(flags))
            for server, flags in wish.after.items()
        )

    def _after(self, server: str, command: Restart, *, lenient: bool = False) -> FlagSet:
        self._refuse(server)
        flags = self.flags[server]
        version = self.states[server].version or self.info.sglang
        after = edit(
            flags,
            mtp=command.mtp,
            unset=tuple(name for name in command.unset if not lenient or name in flags),
            set=command.set,
            version=version,
            mtp_config=self.mtp,
        )
        # Flags that it runs with already are no reason against a restart.
        if diff(flags, after) and (trouble := forbidden(after, version, self.info.known_flags)):
            raise Refused(f"{server} would not start: {trouble}" + ("" if trouble.endswith("?") else "."))
        return after

    def _refuse(self, server: str) -> None:
        state = self.states.get(server)
        if state is None:
            there = ", ".join(self.states)
            raise Refused(f"There is no server {server}; there are: {there}.")
        if state.external:
            raise Refused(f"{server} was not started by genmon (servers.urls), so genmon cannot restart it.")
        if state.phase is ServerPhase.WAITING:
            raise Refused(f"{server} has not been launched yet: wait a moment.")


def _what(command: Restart) -> str:
    parts = [] if command.mtp is None else [f"MTP {'on' if command.mtp else 'off'}"]
    parts += [f"−{name}" for name in command.unset]
    parts += [name if value is True else f"{name}={value}" for name, value in command.set.items()]
    return ", ".join(parts) or "restart"


def _has(servers: list[str]) -> str:
    return "has" if len(servers) == 1 else "have"
