"""`genmon sweep`: its options, and what it prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genmon.errors import ConfigError

if TYPE_CHECKING:
    from genmon.config.schema import FlagValue


@click.command()
@click.argument("run_file", required=False, type=click.Path(path_type=Path), metavar="RUN.toml")
@click.option("--demo", is_flag=True, help="Sweep the simulated box.")
@click.option(
    "--concurrency", "-c", default="1,4,8,16,32", show_default=True, help="Rows in flight a server, with commas."
)
@click.option("--mtp", default="off,on", show_default=True, help="off, on, or both. (servers.urls: leave it out.)")
@click.option("--vary", multiple=True, metavar="FLAG=A,B", help="A launch flag and its values; may be given again.")
@click.option("--seconds", default=60.0, show_default=True, help="Longest time a point is measured.")
@click.option("--precision", default=0.01, show_default=True, help="A point is done when its mean is known this well.")
@click.option("--json", "as_json", is_flag=True, help="The sweep as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="One line a point.")
def sweep(
    run_file: Path | None,
    demo: bool,
    concurrency: str,
    mtp: str,
    vary: tuple[str, ...],
    seconds: float,
    precision: float,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Measure concurrency and flags before a job of days: tokens/s, W, J/token, acceptance, TTFT, ITL.

    Each flag set is launched on all GPUs, its concurrencies measured side by side with the job's own prompts.
    Nothing is written to the job's shards. Ctrl-C keeps what was measured so far.
    """
    import msgspec

    from genmon.config.demo import demo_config, write_demo_prompts
    from genmon.config.load import load
    from genmon.sweep.measure import Patience
    from genmon.sweep.show import show, write_csv
    from genmon.sweep.sweep import sweep as run_sweep

    if demo == (run_file is not None):
        raise ConfigError("Name a run file (genmon sweep RUN.toml), or --demo.")
    if run_file is None:
        config = demo_config(Path("genmon-demo-sweep").absolute())
        write_demo_prompts(config.output / "prompts.jsonl")
    else:
        config = load(run_file)
    found = run_sweep(
        config,
        _levels(concurrency),
        () if config.servers.urls and mtp == "off,on" else _arms(mtp),
        dict(_varied(each) for each in vary),
        Patience(seconds=seconds, precision=precision),
        lambda sentence: click.echo(sentence, err=True),
    )
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    elif as_csv:
        write_csv(found, sys.stdout)
    else:
        from rich.console import Console

        show(found, Console() if sys.stdout.isatty() else Console(width=160))
    raise SystemExit(0 if found.points else 1)


def _levels(text: str) -> tuple[int, ...]:
    try:
        levels = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        levels = ()
    if not levels or levels[0] < 1:
        raise ConfigError(f"--concurrency {text}: give whole numbers from 1 on, with commas: 1,8,32.")
    return levels


def _arms(text: str) -> tuple[bool, ...]:
    arms = {part.strip() for part in text.split(",")}
    if not arms or not arms <= {"off", "on"}:
        raise ConfigError(f"--mtp {text}: give off, on, or off,on.")
    return tuple(arm == "on" for arm in sorted(arms))


def _varied(text: str) -> tuple[str, tuple[FlagValue, ...]]:
    name, _, values = text.partition("=")
    if not name or not values:
        raise ConfigError(f"--vary {text}: give a flag and its values: max-running-requests=16,48,96.")
    return name.lstrip("-"), tuple(_value(part.strip()) for part in values.split(","))


def _value(text: str) -> FlagValue:
    """As the run file would hold it: true and false are flags without a value, numbers are numbers."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
