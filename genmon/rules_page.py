"""The table of rules as `genmon tells` prints it, with where each stands in a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genmon.state import State
from genmon.tells.inputs import JOB, SERVER
from genmon.tells.table import Give, Row


def rule_lines(rows: Sequence[Row], state: State | None) -> Iterator[str]:
    """Each rule: where it stands (with a run's state), its level, id, what it looks for, and what it prescribes."""
    told = {tell.id: tell for tell in state.tells} if state else {}
    unknown = {each.rule: each.reason for each in state.not_checked} if state else {}
    width = max(len(row.id) for row in rows)
    for row in rows:
        mark = "" if state is None else "TOLD " if row.id in told else "?    " if row.id in unknown else "ok   "
        flags = f" [{_flags(row.rule.give)}]" if row.rule.give else ""
        yield f"{mark}{row.rule.level.value:<5} {row.id:<{width}}  {row.rule.looks_for}; {row.rule.mend}{flags}"
        if row.id in told:
            yield f"      {told[row.id].sentence}"
        elif row.id in unknown:
            yield f"      not checked: {unknown[row.id]}"


def input_lines() -> Iterator[str]:
    """Each input that a signature can ask for."""
    for scope, inputs in (("server", SERVER), ("job", JOB)):
        yield f'scope = "{scope}"'
        for name, each in inputs.items():
            yield f"  {name:<22} {each.unit:<8} {each.meaning} ({each.source})"


def _flags(give: Give) -> str:
    parts = [f"{name}={value}" if value is not True else name for name, value in give.set.items()]
    parts += [f"no {name}" for name in give.unset]
    if give.mtp is not None:
        parts.append("MTP on" if give.mtp else "MTP off")
    if give.concurrency is not None:
        parts.append(f"concurrency {give.concurrency}")
    return ", ".join(parts) or "restart"
