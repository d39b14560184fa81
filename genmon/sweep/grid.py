"""What a sweep measures: flag sets, and the rows in flight to measure each with."""

from __future__ import annotations

from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from genmon.config.schema import FlagValue, RunConfig
from genmon.errors import ConfigError
from genmon.fleet.flags.compose import run_flags
from genmon.fleet.flags.speculation import mtp_off, mtp_on

_GENMONS_OWN = ("model-path", "served-model-name", "enable-metrics", "uvicorn-access-log-exclude-prefixes")


class Variant(Struct, frozen=True, kw_only=True):
    """One flag set, and the run that launches it."""

    label: str
    mtp: bool
    changed: dict[str, FlagValue]
    """The varied flags, without MTP's."""
    config: RunConfig


def variants(
    config: RunConfig,
    mtp: tuple[bool, ...],
    vary: dict[str, tuple[FlagValue, ...]],
    version: str | None,
) -> tuple[Variant, ...]:
    """Every combination, MTP off before on. All arms have the radix-cache setting that goes with MTP.

    `version` is that of the SGLang that will run, None when unknown.

    Raises:
        ConfigError: the servers run already (`servers.urls`), so that their flags cannot be changed.
    """
    if config.servers.urls:
        if mtp or vary:
            raise ConfigError("servers.urls run already: their flags cannot be varied; leave --mtp and --vary out.")
        return (Variant(label="as they run", mtp=False, changed={}, config=config),)
    mtp = mtp or (False, True)
    made = []
    for values in product(*vary.values()):
        changed = dict(zip(vary, values, strict=True))
        flags = run_flags(config) | changed
        fair = mtp_on(flags, version, config.servers.mtp) if len(mtp) > 1 else flags
        plain = {name: value for name, value in mtp_off(fair).items() if name not in _GENMONS_OWN}
        for on in sorted(mtp):
            words = [f"MTP {'on' if on else 'off'}", *(f"{name}={value}" for name, value in changed.items())]
            servers = replace(config.servers, flags=plain, mtp=replace(config.servers.mtp, enabled=on))
            made.append(
                Variant(label=", ".join(words), mtp=on, changed=changed, config=replace(config, servers=servers))
            )
    return tuple(made)
