"""What we promise about the source itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
from scripts.rooms import ROOT, page


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("ottla.client", {"pyspark", "kazoo", "construct", "pyarrow"}),
        ("ottla.protocol.requests", {"construct", "cramjam", "pdb", "asyncio"}),
        ("ottla.broker.config", {"construct", "javaproperties", "asyncio"}),
        ("ottla.console.server", {"construct", "rich", "pyarrow", "numpy", "fastavro", "google.protobuf", "kazoo"}),
    ],
)
def test_imports_stay_light(module: str, absent: set[str]) -> None:
    """Heavy packages come in where they are first used, not when a room is entered."""
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert absent.isdisjoint(loaded.stdout.split())


def test_the_page_of_rooms_is_current() -> None:
    """`make docs` was run after the last file was added, moved or described differently."""
    assert (ROOT / "docs" / "ROOMS.md").read_text() == page()
