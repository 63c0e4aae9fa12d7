"""Reads what is at the locations of a ledger's tables."""

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from duesweep.drivers.spark import SPARK_ERRORS, is_transient, sentence
from duesweep.errors import ConfigError, LedgerError
from duesweep.ledger import locations
from duesweep.ledger.identity import ID_PROPERTY, LedgerTableFacts

_S3_LOG_STORE = "spark.delta.logStore.{scheme}.impl"
_ABSENCE = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
    "PATH_NOT_FOUND",
)


def is_absence(error: Exception) -> bool:
    """Whether an error says that there is no such table."""
    return isinstance(error, AnalysisException) and any(each in str(error) for each in _ABSENCE)


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """Reads facts about the tables under one root."""

    spark: SparkSession
    root: str

    def read_facts(self, name: str) -> LedgerTableFacts:
        """What is at the location of the table `name`.

        Raises `ConfigError` where the catalog schema does not exist, `LedgerError` where the
        location cannot be read.
        """
        location = locations.table_name(self.root, name)
        # Asked first: for a statement that fails, Spark logs a long Java stack.
        if not locations.is_path(self.root) and not self._has_schema():
            raise self._schema_error()
        try:
            rows = self.spark.sql(f"SHOW TBLPROPERTIES {location}").collect()
            found = {row["key"]: row["value"] for row in rows}
            columns = () if ID_PROPERTY in found else self.spark.read.table(location).columns
        except AnalysisException as error:
            if "SCHEMA_NOT_FOUND" in str(error):
                raise self._schema_error() from error
            if not is_absence(error):
                raise self._make_error(error) from error
            return LedgerTableFacts(name, location, holds_data=self._holds_data(name))
        except SPARK_ERRORS as error:
            raise self._make_error(error) from error
        return LedgerTableFacts(name, location, found, columns=frozenset(columns))

    def _has_schema(self) -> bool:
        try:
            return self.spark.catalog.databaseExists(locations.schema_name(self.root))
        except SPARK_ERRORS:
            # Its error is told by the statement that needs the schema.
            return True

    def _schema_error(self) -> ConfigError:
        return ConfigError(
            f"ledger.root is {self.root!r}, but there is no such catalog schema",
            advice=f"write ./{self.root} for a folder, or create the schema",
        )

    def check_log_store(self) -> None:
        """Raise `ConfigError` for a root on S3 where a writer could overwrite another's commits."""
        scheme = locations.scheme(self.root)
        if scheme not in {"s3", "s3a", "s3n"}:
            return
        setting = _S3_LOG_STORE.format(scheme=scheme)
        on_databricks = self.spark.conf.get("spark.databricks.clusterUsageTags.clusterId", None)
        if on_databricks is None and self.spark.conf.get(setting, None) is None:
            raise ConfigError(
                f"Two sweeps could overwrite each other's commits under {self.root}",
                advice=(
                    f"set {setting} to a multi-writer log store "
                    "(io.delta.storage.S3DynamoDBLogStore)"
                ),
            )

    def _holds_data(self, name: str) -> bool:
        """Whether there are data files where a table should be. A catalog checks that itself."""
        if not locations.is_path(self.root):
            return False
        path = locations.table_path(self.root, name)
        folder = locations.local_folder(path)
        if folder is not None:
            return locations.holds_data(folder)
        try:
            # Spark looks for one file to take the schema from, and reads no more.
            self.spark.read.format("parquet").load(path)
        except AnalysisException:
            return False
        except SPARK_ERRORS as error:
            raise self._make_error(error) from error
        return True

    def _make_error(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"The ledger at {self.root} is unreadable: {sentence(error)}",
            advice="check ledger.root and the right to read there",
            transient=is_transient(error),
        )
