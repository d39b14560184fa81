"""What a process loads: an engine no terminal, a question to genmon nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"textual", "rich", "openai", "duckdb", "aiohttp"}


def loaded(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after a statement."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_the_engine_loads_no_terminal() -> None:
    assert "textual" not in loaded("import genmon.engine.process")


@pytest.mark.parametrize("module", ["genmon.cli", "genmon.wire.client, genmon.status"])
def test_help_and_status_load_nothing_heavy(module: str) -> None:
    assert not loaded(f"import {module}") & HEAVY - {"rich"}


def test_the_dashboard_loads_no_engine() -> None:
    assert not loaded("import genmon.ui") & {"openai", "duckdb", "aiohttp", "pynvml"}
