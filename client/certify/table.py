"""The one list of subjects, and with them of all checks."""

from __future__ import annotations

from typing import Final

from ottla.client.certify.check import Check, Checks
from ottla.client.certify.checks import (
    admin,
    consumer_groups,
    failures,
    fetch,
    frames,
    groups,
    idempotence,
    metadata,
    order,
    produce,
    transactions,
    versions,
)

SUBJECTS: Final[tuple[Checks, ...]] = (
    versions.CHECKS,
    metadata.CHECKS,
    produce.CHECKS,
    order.CHECKS,
    idempotence.CHECKS,
    fetch.CHECKS,
    groups.CHECKS,
    consumer_groups.CHECKS,
    transactions.CHECKS,
    admin.CHECKS,
    frames.CHECKS,
    failures.CHECKS,
)


def all_checks() -> list[Check]:
    """Return all checks in the order of the report."""
    return [check for subject in SUBJECTS for check in subject.declared]
