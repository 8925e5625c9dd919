"""What we promise about the source itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path
    for room in ("protocol", "broker", "client", "pipeline", "bench", "tests")
    for path in (ROOT / room).rglob("*.py")
)
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70


def test_files_and_functions_stay_readable() -> None:
    """No file past 700 lines, no function past 70; below that, a class is never cut to meet a number."""
    assert [where for path in SOURCES for where in _too_long(path)] == []


def _too_long(path: Path) -> Iterator[str]:
    text, name = path.read_text(), str(path.relative_to(ROOT))
    if text.count("\n") > FILE_LINES_MAX:
        yield name
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno
            if lines >= FUNCTION_LINES_MAX:
                yield f"{name}: {node.name}"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("ottla.client", {"pyspark", "kazoo", "construct", "pyarrow"}),
        ("ottla.protocol.requests", {"construct", "cramjam", "pdb", "asyncio"}),
        ("ottla.broker.config", {"construct", "javaproperties", "asyncio"}),
    ],
)
def test_imports_stay_light(module: str, absent: set[str]) -> None:
    """Heavy packages come in where they are first used, not when a room is entered."""
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert absent.isdisjoint(loaded.stdout.split())
