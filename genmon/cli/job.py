"""`genmon init`, `check`, `verify` and `export`: before a run, and after it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from genmon.cli.run import run_config
from genmon.config.overrides import run_options
from genmon.errors import ConfigError, GenmonError


@click.command()
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write here instead of to standard output.")
def init(output: Path | None) -> None:
    """Write a run file for this machine: its GPUs, its SGLang, the prompts in this folder."""
    from genmon.config.starter import starter
    from genmon.gpu.nvml import list_gpus

    try:
        gpus = list_gpus()
    except GenmonError as error:
        click.echo(f"note: {error}", err=True)
        gpus = ()
    text = starter(gpus, Path.cwd(), output.resolve().parent if output else None)
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists():
        raise ConfigError(f"{output} exists already: choose another name or remove it.")
    output.write_text(text)
    click.echo(f"wrote {output}; next: genmon check {output}", err=True)


@click.command()
@click.argument("run_file", type=click.Path(path_type=Path), metavar="RUN.toml")
@run_options
def check(run_file: Path, **options: object) -> None:
    """Say, before anything starts, whether a run could: GPUs, SGLang, flags, ports, disk, prompts."""
    from genmon.check.report import check as check_run

    raise SystemExit(check_run(run_config(run_file, False, options), sys.stdout))


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def verify(directory: Path, as_json: bool) -> None:
    """Prove a job directory: missing, doubled, torn and foreign rows. Exit code 1 if there are any."""
    import msgspec

    from genmon.job.verify import verify as verify_job

    report = verify_job(directory)
    click.echo(msgspec.json.encode(report).decode() if as_json else str(report))
    raise SystemExit(0 if report.clean else 1)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["specforge", "openai-batch", "parquet"]),
    default="specforge",
    show_default=True,
    help="specforge and DFlash training rows, OpenAI Batch output lines, or Parquet with all that is known of a row.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="The file to write.")
def export(directory: Path, format_: str, output: Path) -> None:
    """Write the rows done so far to one file; works while the job runs."""
    from genmon.job.export import export as export_job

    rows = export_job(directory, format_, output)
    click.echo(f"{rows:,} rows written to {output}", err=True)
