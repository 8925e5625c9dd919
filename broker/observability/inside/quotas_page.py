"""What clients with a quota use of it now."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from ottla.broker.quotas.client_quotas import ClientQuotas

_SHOWN_MAX: Final = 200


class QuotasPage:
    """Reads the quotas of one broker."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def __call__(self, subject: str) -> dict[str, Any] | None:
        """Return the page; there is only one."""
        if subject:
            return None
        quotas = self._quotas
        return {
            "use": [
                {
                    "kind": kind,
                    "user": row.user,
                    "client_id": row.client_id,
                    "value": row.value,
                    "throttle_ms": row.throttle_ms,
                }
                for kind, quota in (
                    ("producer_byte_rate", quotas.produce),
                    ("consumer_byte_rate", quotas.fetch),
                    ("request_percentage", quotas.request),
                    ("controller_mutation_rate", quotas.mutation),
                )
                for row in islice(quota.rows(), _SHOWN_MAX)
            ]
        }
