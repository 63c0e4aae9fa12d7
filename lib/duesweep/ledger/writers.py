"""Which roots delta-rs can write."""

from duesweep.errors import ConfigError
from duesweep.ledger import locations

# Where its commits are safe beside another writer's: https://delta-io.github.io/delta-rs/
_SCHEMES = {"", "file", "s3", "abfss", "gs"}


def require_delta_rs_root(root: str) -> None:
    """Raise `ConfigError` for a root that delta-rs cannot write."""
    is_known = locations.is_path(root) and locations.scheme(root) in _SCHEMES
    # delta-rs takes a percent sign in a path for an escape, however it is written.
    if not is_known or "%" in root:
        raise ConfigError(
            f"delta-rs cannot write a ledger at {root}",
            advice='set ledger.writer = "spark", or ledger.root to a folder or to s3:, abfss:, gs:',
        )
