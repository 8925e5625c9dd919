"""The packages of an image: a part of the lock that is complete, and no more than that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def locked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "locked_requirements.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def packages(*arguments: str) -> set[str]:
    """Return the names that the script prints."""
    return set(re.findall(r"^([a-z0-9-]+)==", locked(*arguments).stdout, re.MULTILINE))


def test_the_broker_gets_what_it_needs_and_no_more() -> None:
    """Also what its packages need; neither Spark nor the tools of developers."""
    names = packages()
    assert {"kazoo", "uvloop", "click", "rich", "markdown-it-py", "mdurl"} <= names
    assert not names & {"pyspark", "pytest", "numpy", "ruff", "cryptography", "scramp"}


def test_extras_add_their_packages() -> None:
    """With the packages behind them."""
    assert packages("--extra", "pipeline") - packages() >= {"pyspark", "py4j", "pyarrow", "numpy"}
    assert packages("--extra", "security") - packages() >= {"cryptography", "cffi", "pyjwt"}


def test_every_package_comes_with_its_hashes() -> None:
    """Entries keep the lines that pip checks downloads against."""
    entries = re.split(r"^(?=\S)", locked("--only", "setuptools").stdout, flags=re.MULTILINE)[1:]
    assert len(entries) == 1
    assert entries[0].startswith("setuptools==")
    assert "--hash=sha256:" in entries[0]


def test_a_package_that_is_not_in_the_lock_is_an_error() -> None:
    """It says which one."""
    result = locked("--only", "no-such-package")
    assert (result.returncode, "no-such-package" in result.stderr) == (1, True)
