"""The ledger's tables for Python: in Spark, or in Arrow without it."""

from typing import TYPE_CHECKING, Any

from duesweep.core.errors import ConfigError
from duesweep.ledger.base import CHANGES, TABLES, table_name
from duesweep.ledger.ledger import require_delta_rs_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = (*TABLES, CHANGES)


def read_table(root: str, name: str, spark: "SparkSession | None") -> Any:
    """A `pyspark.sql.DataFrame`, which reads nothing yet, or without Spark a `pyarrow.Table`.
    Raises `ConfigError` for a name that no table has.
    """
    if name not in _NAMES:
        raise ConfigError(f"The ledger has no table {name!r}", advice=f"one of {', '.join(_NAMES)}")
    if spark is not None:
        return spark.read.table(table_name(root, name))
    require_delta_rs_root(root)
    from duesweep.ledger.delta_rs import DeltaRsTables  # noqa: PLC0415 - slow to load

    return DeltaRsTables(root).arrow(name)
