"""Which records are bad, and why; and what a dead letter looks like."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from ottla.pipeline.transforms.headers import places, with_headers

REASON: Final = "reason"
HEADER_PREFIX: Final = "ottla.dead-letter."
_UNPARSED: Final = "__unparsed"


def with_reason(rows: DataFrame, *, json: bool, schema: StructType | None) -> DataFrame:
    """Add `reason`: why a record is bad, null for a good one.

    A record without a value is a tombstone, and never bad. With a schema, fields that are NOT NULL must be there, and
    each must be of its type; other fields may be there as well.
    """
    text = F.col("value").cast("string")
    reasons: list[Column] = []
    if json or schema is not None:
        reasons.append(F.when(F.try_parse_json(text).isNull(), F.lit("the value is not JSON")))
    if schema is not None:
        reasons.extend(_schema_reasons(text, schema))
    reason = F.coalesce(*reasons) if reasons else F.lit(None).cast("string")
    return rows.withColumn(REASON, F.when(F.col("value").isNotNull(), reason))


def _schema_reasons(text: Column, schema: StructType) -> list[Column]:
    # Spark's parser takes all fields as nullable, and says in one more what did not fit.
    parsed = F.from_json(
        text,
        StructType([*schema.fields, StructField(_UNPARSED, StringType())]),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNPARSED},
    )
    # null is JSON, too, but no event.
    mismatch = parsed.isNull() | parsed[_UNPARSED].isNotNull()
    reasons = [F.when(mismatch, F.lit("the value is not of the schema"))]
    for field in schema.fields:
        if not field.nullable:
            reasons.append(F.when(parsed[field.name].isNull(), F.lit(f"the field {field.name} is missing")))
    return reasons


def dead_letters(bad: DataFrame, *kept: str) -> DataFrame:
    """Return rows for the dead-letter topic: as they came, with the reason and their place in further headers.

    Of the other columns only those named in `kept` are left.
    """
    added = {f"{HEADER_PREFIX}reason": F.col(REASON), **places(HEADER_PREFIX)}
    return bad.select("key", "value", with_headers(added).alias("headers"), *kept)
