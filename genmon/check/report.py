"""The report: what is looked at, in order, and what it comes to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import TextIO

from genmon.check import job, machine, servers
from genmon.check.finding import Finding, fail, ok
from genmon.config.schema import RunConfig
from genmon.fleet.interpreter import probe
from genmon.gpu.nvml import Nvml


def check(config: RunConfig, out: TextIO, *, open_nvml: Callable[[], Nvml] = Nvml) -> int:
    """Write a line for each thing looked at; 0 when the run could start, 1 when it could not.

    `open_nvml` opens the NVIDIA driver.
    """
    failed = warned = 0
    for finding in _findings(config, open_nvml):
        failed += finding.level == "FAIL"
        warned += finding.level == "warn"
        out.write(f"{finding.level:<4}  {finding.what + ':':<10} {finding.sentence}\n")
        out.flush()
    simulated = " (SIMULATED)" if config.simulation is not None else ""
    if failed:
        out.write(f"could not run{simulated}: mend what says FAIL\n")
    else:
        out.write(f"could run{simulated}" + (f"; look at {warned} warn\n" if warned else "\n"))
    return 1 if failed else 0


def _findings(config: RunConfig, open_nvml: Callable[[], Nvml]) -> Iterator[Finding]:
    yield ok("run file", f"{config.name}: {config.model.name}")
    key = config.servers.api_key_env
    if key and not os.environ.get(key):
        yield fail("API key", f"the environment variable {key} (servers.api_key_env) is not set")
    if config.simulation is not None:
        count, version = config.simulation.gpus, config.simulation.version
        yield ok("GPUs", f"simulated: SIMULATED, {count} × {config.simulation.gpu}; no real GPU is used")
        yield ok("SGLang", f"simulated: SIMULATED, the protocol of {version}; none is launched")
        yield from servers.flags(config, version, None)
        yield machine.ports(config, count)
    elif config.servers.urls:
        yield from asyncio.run(servers.reachable(config))
    else:
        yield machine.model(config)
        count, findings = machine.gpus(config, open_nvml)
        yield from findings
        interpreter = probe(config.servers.python, config.servers.env)
        if interpreter.sglang is None:
            yield fail("SGLang", interpreter.trouble or "not found")
        else:
            yield ok("SGLang", f"{interpreter.sglang} on Python {interpreter.python} ({interpreter.path})")
            yield from servers.flags(config, interpreter.sglang, interpreter)
        yield machine.ports(config, count)
    yield from servers.sampling(config)
    row_count, findings = job.prompts(config)
    yield from findings
    yield from job.output(config, row_count)
