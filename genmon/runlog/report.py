"""One run as a page that a person sends to a colleague: one HTML file, no network, no script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from genmon.figures import UNKNOWN, count, decimal, duration
from genmon.runlog.chart import Line, chart
from genmon.runlog.figures import Side
from genmon.runlog.story import Moment, Story
from genmon.runlog.words import LABELS, answer, clock, figure_text, on_off

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5b6577; --paper: #ffffff; --card: #f3f5f8; --grid: #d8dde5;
  --power: #b4530a; --limit: #b9a48f; --tokens: #0b6bcb; --accept: #2a7d3f; --mark: #8a3ffc; --alarm: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf0; --soft: #a3adbd; --paper: #14171d; --card: #1e232c;
  --grid: #343c49; --power: #ff9d52; --limit: #7d6a58; --tokens: #6cb6ff; --accept: #6fd08c; --mark: #be95ff;
  --alarm: #ff8a7a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 0 auto; padding: 1.2rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; color: var(--soft); overflow-wrap: anywhere; }
.simulated { color: var(--paper); background: var(--alarm); padding: .3rem .6rem; font-weight: 700;
  display: inline-block; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.tiles div { background: var(--card); padding: .6rem .8rem; border-radius: .4rem; }
.tiles b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; } .tiles span { color: var(--soft); }
figure { margin: 0 0 .6rem; } svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; } svg .title { fill: var(--ink); font-size: 13px; font-weight: 600; }
svg .y { text-anchor: end; } svg .x { text-anchor: middle; }
svg .grid { stroke: var(--grid); } svg .mark { stroke: var(--mark); stroke-dasharray: 4 3; stroke-width: 1.5; }
svg polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .power { stroke: var(--power); } svg .limit { stroke: var(--limit); stroke-dasharray: 2 4; }
svg .tokens { stroke: var(--tokens); } svg .accept { stroke: var(--accept); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) { svg text, svg .title { font-size: 19px; } }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--soft); font-weight: 600; } td.n { white-space: nowrap; } code { overflow-wrap: anywhere; }
"""


def page(story: Story) -> str:
    """The whole page."""
    run = story.run
    simulated = (
        '<p class="simulated">SIMULATED: nothing here is a measurement of a machine</p>' if run.simulated else ""
    )
    title = f"{'SIMULATED · ' if run.simulated else ''}{run.run}"
    ended = f"{run.state}{': ' + run.reason if run.reason else ''}"
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(run.run)}</h1>{simulated}",
            f"<p>{escape(run.model)} on {escape(run.host)}, from {clock(run.started_at)} UTC, {duration(run.seconds)}.",
            f" {escape(ended)}.</p>",
            _tiles(story),
            _plots(story),
            _section("Figures", _figures(story)),
            _section("Answers", _answers(story.whole)),
            _section("What genmon said", _tells(story)),
            _section("What was done", _commands(story)),
            _section("Flag changes", _changes(story)),
            _section("Launches", _launches(story)),
            _section("Flags", _flags(story)),
            f"<p>genmon {escape(run.genmon)}, SGLang {escape(run.sglang or UNKNOWN)}, code "
            f"<code>{escape(run.git_revision or UNKNOWN)}</code>, job <code>{escape(run.job_directory)}</code>.</p>",
            "</body></html>\n",
        )
    )


def _tiles(story: Story) -> str:
    run = story.run
    tiles = [
        (count(run.rows_done), f"of {count(run.rows_total)} rows done in this run"),
        (count(run.tokens_per_s), "tokens/s, kept"),
        (decimal(run.power_w, 0), "W a GPU, mean"),
        (decimal(run.joules_per_token, 3), "J/token, kept"),
        (decimal(run.acceptance_length), "acceptance length"),
        (decimal(run.energy_kwh, 3), "kWh of the GPUs"),
    ]
    if run.rows_failed:
        tiles.append((count(run.rows_failed), "rows failed"))
    return (
        '<div class="tiles">' + "".join(f"<div><b>{n}</b><span>{words}</span></div>" for n, words in tiles) + "</div>"
    )


def _plots(story: Story) -> str:
    moments, start = story.moments, story.run.started_at
    span_s = max([story.run.seconds or 0.0, *(moment.seconds for moment in moments)])
    marks = [
        ((launch.started_at - start).total_seconds(), f"{launch.launch} started, flags {launch.flag_set}")
        for launch in story.launches
    ]

    def line(css: str, name: str) -> Line:
        return Line(css, [(moment.seconds, _value(moment, name)) for moment in moments])

    return (
        _section("Over time", "<p>All servers together; dashed upright lines are launches.</p>")
        + chart(
            "W, all GPUs (dotted: their limit)",
            [line("limit", "power_limit_w"), line("power", "power_w")],
            marks,
            span_s,
        )
        + chart("decoded tokens/s", [line("tokens", "tokens_per_s")], marks, span_s)
        + chart("acceptance length, tokens per verify step", [line("accept", "acceptance_length")], marks, span_s)
    )


def _value(moment: Moment, name: str) -> float | None:
    value = getattr(moment, name)
    return value if isinstance(value, float) else None


def _figures(story: Story) -> str:
    sides = (story.whole, *story.flag_sets) if len(story.flag_sets) > 1 else (story.whole,)
    heads = ("", *("the run" if side is story.whole else f"flags {side.name.rpartition('/')[2]}" for side in sides))
    rows = [
        (LABELS[name][0], *(figure_text(side.figures.get(name)) for side in sides))
        for name in LABELS
        if name in story.whole.figures
    ]
    note = "<p>Means of one server over blocks of ten seconds at work (latency: over rows), ± 95 %, n in brackets.</p>"
    return _table(heads, rows) + note if rows else ""


def _answers(side: Side) -> str:
    rows = [(name.replace("_", " "), answer(each)) for name, each in side.answers.items()]
    return _table(("class", "share (95 %)"), rows)


def _tells(story: Story) -> str:
    rows = [
        (clock(tell.since_at), clock(tell.gone_at), tell.level, tell.followed or tell.sentence, tell.mend or "")
        for tell in story.tells
    ]
    return _table(("since", "until", "level", "what", "what mends it"), rows)


def _commands(story: Story) -> str:
    rows = [
        (clock(each.given_at), each.given_by, each.command, each.effect if each.obeyed else f"refused: {each.effect}")
        for each in story.commands
    ]
    return _table(("when", "by", "command", "effect"), rows)


def _changes(story: Story) -> str:
    rows = [
        (clock(each.started_at), each.what, ", ".join(each.servers), each.outcome or "", each.verdict_sentence or "")
        for each in story.changes
    ]
    return _table(("when", "what", "servers", "outcome", "verdict"), rows)


def _launches(story: Story) -> str:
    rows = [
        (
            launch.launch,
            UNKNOWN if launch.gpu_index is None else str(launch.gpu_index),
            launch.flag_set,
            on_off(launch.mtp),
            count(launch.cap),
            clock(launch.started_at),
            duration(launch.ready_s),
            launch.end_reason or "",
        )
        for launch in story.launches
    ]
    return _table(("launch", "GPU", "flags", "MTP", "cap", "started", "ready after", "why it ended"), rows)


def _flags(story: Story) -> str:
    """Each flag set: the first whole, of the others what differs."""
    rows: list[tuple[str, ...]] = []
    first: dict[str, str] = {}
    for side in story.flag_sets:
        name = side.name.rpartition("/")[2]
        if not first:
            first = side.flags
            shown = [_word(flag, value) for flag, value in first.items()]
        else:
            shown = [_word(flag, value) for flag, value in side.flags.items() if first.get(flag) != value]
            shown += [f"without {flag}" for flag in first if flag not in side.flags]
            shown = ["as the first, but:", *shown]
        rows.append((name, "  ".join(shown)))
    return _table(("flags", ""), rows)


def _word(flag: str, value: str) -> str:
    return f"--{flag}" if value == "true" else f"--{flag} {value}"


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}" if content else ""


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    if not lines:
        return ""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return (
        f'<div class="wide"><table><tr>{head}</tr>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"
    )
