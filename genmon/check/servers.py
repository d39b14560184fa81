"""The servers of a run: SGLang and its flags, or servers that already run, and what rows would ask of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from difflib import get_close_matches

from genmon.check.finding import Finding, fail, ok, warn
from genmon.config.schema import RunConfig
from genmon.errors import ServerError
from genmon.fleet.flags.compose import run_flags
from genmon.fleet.flags.problems import problems
from genmon.fleet.http import SglangHttp
from genmon.fleet.interpreter import Interpreter, known_flags

_HIGH_FRACTION = 0.93


def flags(config: RunConfig, version: str, interpreter: Interpreter | None) -> Iterator[Finding]:
    """Whether this SGLang starts with the flags; without an interpreter, as far as the version is known."""
    flags = run_flags(config)
    known = known_flags(interpreter) if interpreter else None
    found = problems(flags, version)
    told = " ".join(each.sentence for each in found if each.fatal)
    failed = False
    for flag in flags:
        if known and flag not in known and f"--{flag}:" not in told:
            failed = True
            near = get_close_matches(flag, known, 1)
            yield fail("flags", f"SGLang {version} has no --{flag}" + (f"; did you mean {near[0]}?" if near else ""))
    for each in found:
        yield Finding("FAIL" if each.fatal else "warn", "flags", each.sentence)
    fraction = flags.get("mem-fraction-static")
    if fraction is not None and not (isinstance(fraction, int | float) and 0 < fraction < 1):
        failed = True
        yield fail("flags", f"mem-fraction-static must be between 0 and 1, not {fraction}")
    elif isinstance(fraction, int | float) and fraction > _HIGH_FRACTION:
        sentence = (
            f"mem-fraction-static = {fraction} leaves little for activations and CUDA graphs: 0.80 to 0.90 is usual"
        )
        yield warn("flags", sentence)
    if not failed and not any(each.fatal for each in found):
        how = "its own source accepts them" if known else "as far as that version is known"
        yield ok("flags", f"{len(flags)} for SGLang {version}; {how}")


async def reachable(config: RunConfig) -> list[Finding]:
    """Whether each of the servers that already run answers as SGLang does."""
    name = config.servers.api_key_env
    key = os.environ.get(name) if name else None
    return list(await asyncio.gather(*(_one_reachable(url, key) for url in config.servers.urls)))


async def _one_reachable(url: str, key: str | None) -> Finding:
    http = SglangHttp(url, key)
    try:
        if not await http.answers():
            return fail("server", f"{url} cannot be reached")
        info = await http.info()
    except ServerError as error:
        return fail("server", f"{url} answers, but not as SGLang does: {error}")
    finally:
        await http.close()
    version = f"SGLang {info.version}" if info.version else "SGLang of unknown version"
    cap = f"cap {info.cap}" if info.cap is not None else "cap unknown"
    simulated = " (SIMULATED)" if info.simulated else ""
    return ok("server", f"{url}: {version}, MTP {'on' if info.mtp else 'off'}, {cap}{simulated}")


def sampling(config: RunConfig) -> Iterator[Finding]:
    """What the sampling asks of the servers that they may not give."""
    flags, sampling, launched = config.servers.flags, config.sampling, not config.servers.urls
    if sampling.max_tokens is None:
        sentence = "no sampling.max_tokens: an answer that never ends runs to the model's whole context"
        yield warn("sampling", sentence)
    if launched and sampling.thinking and "reasoning-parser" not in flags:
        sentence = "thinking is on without servers.flags.reasoning-parser: thoughts will stand in the answers"
        yield warn("sampling", sentence)
    cap, asked = flags.get("max-running-requests"), config.workers.concurrency
    if isinstance(cap, int) and isinstance(asked, int) and asked > cap:
        sentence = (
            f"workers.concurrency = {asked} is above max-running-requests = {cap}: never more than {cap} are sent"
        )
        yield warn("sampling", sentence)
