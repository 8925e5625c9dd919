"""What checks have left behind."""

from __future__ import annotations

from ottla.client.certify.runner import PREFIX
from ottla.sync import Admin


def names_left(bootstrap: str) -> list[str]:
    """Return topics and groups of checks that are still there."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        topics = [each.name for each in admin.list_topics()]
        groups = [each.group_id for each in admin.list_groups()]
    return [name for name in topics + groups if name.startswith(PREFIX)]
