"""Columns with schemas of a registry: `from_registry` decodes keys and values of records, `to_registry` encodes them.

    from ottla.pipeline.schemas import from_registry, to_registry

    orders = rows.select(from_registry("value", "http://localhost:8081", "orders-value").alias("order"))
    values = orders.select(to_registry("order", "http://localhost:8081", "invoices-value").alias("value"))

They work on the rows of any source: `ottla`, `ottla-log`, an archive, and Spark's own `kafka`.
"""

from __future__ import annotations

from ottla.pipeline.schemas.functions import from_registry, to_registry

__all__ = ["from_registry", "to_registry"]
