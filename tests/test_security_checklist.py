"""The checklist of docs/SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_of_the_checklist_exists() -> None:
    """Under the name that stands there."""
    page = (ROOT / "docs" / "SECURITY.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / "tests" / path).exists() or f"def {name}(" not in (ROOT / "tests" / path).read_text()
    ]
    assert named
    assert missing == []
