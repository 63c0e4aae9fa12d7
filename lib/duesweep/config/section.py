"""What all sections of a configuration have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationInfo, field_validator

from duesweep.config.ports import PROBLEM, has_bad_port
from duesweep.config.values import type_problem, without_marks

# The databases count in 32 bits.
MOST = 2**31 - 1


class Section(BaseModel):
    """Its settings: unknown ones are refused, and values of a wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_type(cls, value: Any, given: ValidationInfo) -> Any:
        # Pydantic accepts true as 1, and text as a number whatever source it comes from.
        problem = type_problem(value, cls.model_fields[str(given.field_name)])
        if problem is not None:
            raise ValueError(problem)
        return without_marks(value) if given.field_name == "options" else value


def check_port(dsn: SecretStr | None) -> SecretStr | None:
    """The same dsn or URL. Raises `ValueError` for a port that cannot be."""
    if dsn is not None and has_bad_port(dsn.get_secret_value()):
        raise ValueError(PROBLEM)
    return dsn
