"""Command-line overrides of a run file, by the names this field's regeneration scripts use."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click
from msgspec import Struct

from genmon.errors import ConfigError

F = TypeVar("F", bound=Callable[..., object])


class Override(Struct, frozen=True):
    """One option: the key it sets, its value, and the keys beside it that it makes void."""

    option: str
    path: tuple[str, ...]
    value: object
    drops: tuple[str, ...] = ()


_OPTIONS: tuple[tuple[str, type, tuple[str, ...], str], ...] = (
    ("--model", str, ("model", "path"), "Model folder or hub name."),
    ("--max-tokens", int, ("sampling", "max_tokens"), "Longest completion, tokens."),
    ("--temperature", float, ("sampling", "temperature"), "Sampling temperature."),
    ("--top-p", float, ("sampling", "top_p"), "Nucleus sampling."),
    ("--top-k", int, ("sampling", "top_k"), "Top-k sampling."),
    ("--min-p", float, ("sampling", "min_p"), "Min-p sampling."),
    ("--seed", int, ("sampling", "seed"), "Seed of the first sample of every row."),
    (
        "--num-samples",
        int,
        ("job", "limit"),
        "Take only the first so many prompts (rows, not samples a prompt).",
    ),
    ("--samples-per-prompt", int, ("job", "samples"), "Completions a prompt."),
    ("--shard-size", int, ("job", "shard_size"), "Rows a shard."),
)


def run_options(command: F) -> F:
    """Give a command all override options."""
    for option, kind, _, words in reversed(_OPTIONS):
        command = click.option(option, type=kind, help=words)(command)
    for decorate in (
        click.option("--concurrency", help="Rows in flight a server: a number, or auto (its effective cap)."),
        click.option(
            "--input-file-path",
            multiple=True,
            help="Prompt file or glob instead of job.prompts; may be repeated.",
        ),
        click.option("--output-file-path", "--output", "output_file_path", help="The job directory."),
        click.option(
            "--server-address",
            multiple=True,
            metavar="HOST:PORT",
            help="Use a server that already runs instead of launching any; may be repeated.",
        ),
        click.option(
            "--reasoning",
            type=click.Choice(["none", "save", "disable"]),
            help="save: thinking on; disable: thinking off; none: leave it to the model.",
        ),
        click.option("--resume", is_flag=True, help="Accepted for habit's sake: genmon always goes on where it ended."),
    ):
        command = decorate(command)
    return command


def overrides_from(options: Mapping[str, object]) -> list[Override]:
    """The overrides among a command's options; those not given are left out. Paths are relative to here.

    Raises:
        ConfigError: --concurrency is neither a number nor auto.
    """
    found = [
        Override(option, path, _model(str(value)) if option == "--model" else value)
        for option, _, path, _ in _OPTIONS
        if (value := options.get(option.lstrip("-").replace("-", "_"))) is not None
    ]
    concurrency = options.get("concurrency")
    if concurrency is not None:
        found.append(Override("--concurrency", ("workers", "concurrency"), _concurrency(str(concurrency))))
    prompts = options.get("input_file_path")
    if isinstance(prompts, tuple) and prompts:
        found.append(Override("--input-file-path", ("job", "prompts"), [_pattern(each) for each in prompts]))
    output = options.get("output_file_path")
    if output is not None:
        found.append(Override("--output-file-path", ("job", "output"), _absolute(str(output))))
    addresses = options.get("server_address")
    if isinstance(addresses, tuple) and addresses:
        urls = [each if "://" in each else f"http://{each}" for each in addresses]
        found.append(Override("--server-address", ("servers", "urls"), urls, ("gpus", "flags", "mtp")))
    reasoning = options.get("reasoning")
    if reasoning is not None:
        thinking = {"save": True, "disable": False}.get(str(reasoning))
        found.append(Override("--reasoning", ("sampling", "thinking"), thinking))
    return found


def _concurrency(text: str) -> str | int:
    if text == "auto":
        return text
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"option --concurrency must be a number or auto, not {text!r}.")
    return int(text)


def _absolute(path: str) -> str:
    return os.path.normpath(Path.cwd() / Path(os.path.expanduser(path)))


def _pattern(path: str) -> str:
    """A path or glob from here; what looks like a glob in the name of the folder we are in is none."""
    return os.path.normpath(Path(glob.escape(str(Path.cwd()))) / os.path.expanduser(path))


def _model(path: str) -> str:
    return _absolute(path) if Path(os.path.expanduser(path)).is_dir() else path
