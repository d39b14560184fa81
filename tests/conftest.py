"""What every test is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def _log_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The run log of this user is not for tests."""
    before = os.environ.get("XDG_DATA_HOME")
    folder = tmp_path_factory.mktemp("data")
    os.environ["XDG_DATA_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_DATA_HOME"]
    else:
        os.environ["XDG_DATA_HOME"] = before
