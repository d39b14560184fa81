"""How hybrid models' mamba state goes with the radix cache, by version.

Read in the released packages of 0.5.11 to 0.5.23 (`server_args.py`, `arg_groups/mamba_hook.py`).
"""

from __future__ import annotations

from genmon.fleet.flags.flagset import FlagSet

STRATEGY_OLD, STRATEGY_NEW = STRATEGIES = ("mamba-scheduler-strategy", "mamba-radix-cache-strategy")
NEW_MAMBA = (0, 5, 14)
"""From here on auto is extra_buffer when the overlap scheduler is on; before, auto was no_buffer."""
GUARDED = (0, 5, 16)
"""From here on MTP with extra_buffer has the guard against the None track index that crashed it."""
LAZY_WITH_MTP = (0, 5, 17)


def strategy(flags: FlagSet, numbers: tuple[int, ...]) -> tuple[str, str]:
    """The mamba strategy as asked for, and what auto comes to."""
    asked = str(flags.get(STRATEGY_NEW, flags.get(STRATEGY_OLD, "auto")))
    if asked != "auto":
        return asked, asked
    buffered = numbers >= NEW_MAMBA and not flags.get("disable-overlap-schedule")
    return asked, "extra_buffer" if buffered else "no_buffer"


def goes_with_mtp(flags: FlagSet, numbers: tuple[int, ...]) -> bool:
    """Whether MTP can be added to a hybrid model's flags as they are; `numbers` is empty for an unknown version."""
    if flags.get("disable-radix-cache"):
        return True
    _, found = strategy(flags, numbers)
    first = {"extra_buffer": GUARDED, "extra_buffer_lazy": LAZY_WITH_MTP}.get(found)
    return first is not None and numbers >= first
