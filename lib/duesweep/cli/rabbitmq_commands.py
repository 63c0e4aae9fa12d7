"""The commands of `duesweep rabbitmq`."""

from collections.abc import Sequence

from duesweep.checks.finding import is_to_mend, worst_first
from duesweep.cli.doctor import as_json as document
from duesweep.cli.doctor import print_findings
from duesweep.cli.queue_commands import Target
from duesweep.errors import ExitCode
from duesweep.wiring import rabbitmq_tools

__all__ = ["Target", "create", "verify"]


def create(target: Target, endpoints: Sequence[str]) -> ExitCode:
    """Create what is missing of the delay ladder and of these endpoints."""
    created = rabbitmq_tools.installer(target.config(), target.connection, endpoints).install(
        rebind=False
    )
    for one in created:
        print(f"created {one}")
    if not created:
        # A broker does not say whether a binding was new, so bindings are never listed.
        print("Everything exists.")
    return ExitCode.DONE


def verify(target: Target, *, as_json: bool) -> ExitCode:
    """Check the delay ladder and print the findings; 3 if there is a fault or a warning."""
    config = target.config()
    findings = worst_first(rabbitmq_tools.verification(config, target.connection).findings())
    if as_json:
        print(document(config.store.endpoint, findings))
    else:
        print_findings(findings)
    return ExitCode.MESSAGES_FAILED if any(map(is_to_mend, findings)) else ExitCode.DONE
