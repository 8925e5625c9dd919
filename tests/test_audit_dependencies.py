"""What `make audit` makes of a report of pip-audit."""

from __future__ import annotations

from typing import Any

import pytest
from scripts.audit_dependencies import verdict

CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "code", "says"),
    [
        ([CLEAN], 0, "1 packages checked"),
        ([CLEAN, BAD], 1, "b 2: PYSEC-1, fixed in 3"),
        ([BAD, SKIPPED], 1, "PYSEC-1"),
        ([CLEAN, SKIPPED], 2, "1 of 2 packages could not be checked"),
        ([SKIPPED], 2, "does not answer"),
        ([], 2, "0 of 0"),
    ],
)
def test_packages_that_were_not_checked_are_no_success(packages: list[Any], code: int, says: str) -> None:
    """pip-audit itself would say that nothing was found."""
    exit_code, lines = verdict({"dependencies": packages})
    assert (exit_code, says in "\n".join(lines)) == (code, True)
