"""The answers as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from genmon.figures import UNKNOWN, count, decimal, duration, share
from genmon.runlog.figures import AnswerShare, Comparison, Difference, Figure, Side
from genmon.runlog.questions import RunLine
from genmon.runlog.story import Story

LABELS = {
    "tokens_per_s": ("tokens/s a server", 0),
    "power_w": ("W a GPU", 0),
    "joules_per_token": ("J/token", 3),
    "acceptance_length": ("acceptance length", 2),
    "in_flight": ("rows in flight", 1),
    "latency_s": ("latency, s", 1),
}
"""Each figure's name for people, and its decimals."""


def runs_text(runs: Iterable[RunLine]) -> str:
    """The list of runs."""
    heads = ("run", "state", "rows", "tok/s", "W/GPU", "J/token", "accept", "kWh", "took")
    return table(heads, (_run(run) for run in runs))


def story_text(story: Story) -> str:
    """One run."""
    run = story.run
    parts = [
        table(
            ("run", "state", "rows", "tok/s", "W/GPU", "J/token", "accept", "kWh", "took"),
            [_run(run)],
        ),
        f"{run.model} on {run.host} from {clock(run.started_at)} UTC; genmon {run.genmon}, "
        f"SGLang {run.sglang or UNKNOWN}, code {run.git_revision or UNKNOWN}",
        f"{run.job_directory}" + (f"; {run.reason}" if run.reason else ""),
        table(
            ("launch", "why it ended", "GPU", "flags", "MTP", "cap", "started", "ready after"),
            (
                (
                    launch.launch,
                    launch.end_reason or "",
                    UNKNOWN if launch.gpu_index is None else str(launch.gpu_index),
                    launch.flag_set,
                    on_off(launch.mtp),
                    count(launch.cap),
                    f"{launch.started_at:%H:%M:%S}",
                    duration(launch.ready_s),
                )
                for launch in story.launches
            ),
        ),
    ]
    parts += map(_side, story.flag_sets if len(story.flag_sets) > 1 else (story.whole,))
    if story.tells:
        parts.append(
            table(
                ("tell", "what", "since", "gone"),
                ((t.level, t.sentence, clock(t.since_at), clock(t.gone_at)) for t in story.tells),
            )
        )
    if story.changes:
        parts.append(
            table(
                ("flag change", "outcome", "when"),
                (
                    (f"{c.what} on {', '.join(c.servers)}", c.verdict_sentence or c.outcome or "", clock(c.started_at))
                    for c in story.changes
                ),
            )
        )
    if story.commands:
        parts.append(
            table(
                ("command", "effect", "by", "when"),
                (
                    (c.command, c.effect if c.obeyed else f"refused: {c.effect}", c.given_by, clock(c.given_at))
                    for c in story.commands
                ),
            )
        )
    return "\n\n".join(parts)


def comparison_text(comparison: Comparison) -> str:
    """Two sides: the flags first, then every figure."""
    a, b = comparison.a, comparison.b
    parts = [f"A  {_title(a)}\nB  {_title(b)}"]
    if a.model != b.model:
        parts.append(f"The models differ: {a.model} and {b.model}.")
    if comparison.flags:
        rows = ((each.flag, each.a or UNKNOWN, each.b or UNKNOWN) for each in comparison.flags)
        parts.append(table(("flag", "A", "B"), rows))
    else:
        parts.append("The same flags.")
    changes = {change.figure: change for change in comparison.differences}
    lines = [
        (LABELS[name][0], figure_text(a.figures.get(name)), figure_text(b.figures.get(name)), change(changes.get(name)))
        for name in LABELS
        if name in a.figures or name in b.figures
    ]
    parts.append(table(("", "A", "B", "B against A"), lines))
    classes = [*a.answers, *(name for name in b.answers if name not in a.answers)]
    if classes:
        parts.append(
            table(
                ("answers", "A", "B"),
                (
                    (name.replace("_", " "), answer(a.answers.get(name)), answer(b.answers.get(name)))
                    for name in classes
                ),
            )
        )
    parts.append("Means over ten-second blocks of one server at work (latency: over rows), ± 95 %, n in brackets.")
    return "\n\n".join(parts)


def figure_text(figure: Figure | None) -> str:
    """A mean with its interval and n: 539 ± 4 (120)."""
    if figure is None:
        return UNKNOWN
    digits = LABELS[figure.figure][1]
    half = "" if figure.high is None else f" ± {decimal(figure.high - figure.mean, digits)}"
    return f"{decimal(figure.mean, digits)}{half} ({figure.n})"


def change(difference: Difference | None) -> str:
    """A relative change with its interval: +12 % (+10 to +14)."""
    if difference is None:
        return UNKNOWN
    between = ""
    if difference.low is not None and difference.high is not None:
        between = f" ({difference.low * 100:+.1f} to {difference.high * 100:+.1f})"
    return f"{difference.change * 100:+.1f} %{between}"


def answer(share_: AnswerShare | None) -> str:
    """A share with its interval and counts."""
    if share_ is None:
        return UNKNOWN
    return f"{share_.share:.1%} ({share_.low:.1%} to {share_.high:.1%}; {count(share_.n)} of {count(share_.total)})"


def clock(at: datetime | None) -> str:
    """A time of the log."""
    return UNKNOWN if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def on_off(value: bool | None) -> str:
    """A switch that may be unknown."""
    return UNKNOWN if value is None else "on" if value else "off"


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Aligned columns: the first two to the left, figures to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _side(side: Side) -> str:
    names = [name for name in LABELS if name in side.figures]
    lines = [
        (
            LABELS[name][0],
            figure_text(figure),
            decimal(figure.median, LABELS[name][1]),
            decimal(figure.p95, LABELS[name][1]),
        )
        for name in names
        if (figure := side.figures[name])
    ]
    shares = ", ".join(f"{name.replace('_', ' ')} {share(each.share)}" for name, each in side.answers.items())
    return f"{side.name}\n" + table(("", "mean ± 95 % (n)", "median", "p95"), lines) + f"\nanswers: {shares or UNKNOWN}"


def _title(side: Side) -> str:
    several = f"; {side.flag_sets} flag sets, the last is shown" if side.flag_sets > 1 else ""
    return f"{side.name}{'  SIMULATED' if side.simulated else ''}{several}"


def _run(run: RunLine) -> tuple[str, ...]:
    return (
        run.run,
        run.state + (" SIMULATED" if run.simulated else ""),
        f"{count(run.rows_done)}/{count(run.rows_total)}",
        count(run.tokens_per_s),
        decimal(run.power_w, 0),
        decimal(run.joules_per_token),
        decimal(run.acceptance_length),
        decimal(run.energy_kwh, 3),
        duration(run.seconds),
    )
