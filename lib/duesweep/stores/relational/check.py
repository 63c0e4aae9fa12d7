"""Whether a sweep can work with a table."""

from duesweep.checks.tables import FoundTable, WantedTable, column_names, compare
from duesweep.errors import ConfigError


def refuse_wrong_table(wanted: WantedTable, found: FoundTable | None) -> None:
    """Raise `ConfigError` for the first difference with which no sweep can work. A missing index
    only makes it slow.
    """
    if found is None:
        raise ConfigError(f"There is no {wanted.role} {wanted.name}", advice=wanted.create)
    difference = compare(wanted, found)
    if not difference.has_own_rows:
        raise ConfigError(
            f"{wanted.name} cannot be the {wanted.role}: it is a view, a foreign table or the "
            "like, whose rows cannot be locked",
            advice="set the database, schema and table that hold the rows",
        )
    if difference.wrong_columns:
        lacks = column_names(wanted.columns, difference.wrong_columns)
        raise ConfigError(
            f"{wanted.name} is not the {wanted.role} that is expected: it lacks {lacks}",
            advice=wanted.reshape,
        )
    if difference.missing_rights:
        raise ConfigError(
            f"The sweeper's user lacks {', '.join(difference.missing_rights)} on {wanted.name}",
            advice="grant them; the command `doctor` prints the statements",
        )
