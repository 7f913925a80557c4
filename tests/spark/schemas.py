"""Schemas for tests that have no Spark session to parse DDL."""

from __future__ import annotations

from pyspark.sql.types import StructType

from zambezi.spark.source import SCHEMA


def schema_of(ddl: str) -> StructType:
    """Parse DDL with simple types."""
    schema = StructType()
    for column in ddl.split(", "):
        name, kind, *not_null = column.split()
        schema = schema.add(name, kind, nullable=not not_null)
    return schema


COLUMNS = schema_of(SCHEMA)  # all columns of the source
