"""Users of an endpoint's database, who have the rights that a test gives them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from support.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class User:
    """`name` is quoted. A right names its thing, as in `SELECT ON SCHEMA public`."""

    dsn: str
    name: str
    endpoint: Endpoint[Any]

    def grant(self, *rights: str) -> None:
        for right in rights:
            self.endpoint.execute(f"GRANT {right} TO {self.name}")

    def revoke(self, *rights: str) -> None:
        for right in rights:
            self.endpoint.execute(f"REVOKE {right} FROM {self.name}")


@contextmanager
def new_user(endpoint: Endpoint[Any], *rights: str, suffix: str = "sweeper") -> Iterator[User]:
    """A user with these rights; rights may also be granted later."""
    with endpoint.server.user(suffix) as (dsn, name):
        user = User(dsn, name, endpoint)
        user.grant(*rights)
        yield user
