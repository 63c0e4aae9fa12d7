"""The ledger's columns in Spark's types."""

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from duesweep.ledger.schemas import SCHEMAS

_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns for Spark."""
    return StructType([StructField(field.name, _TYPES[field.type]) for field in schema])


SPARK_SCHEMAS = {name: spark_schema(schema) for name, schema in SCHEMAS.items()}
