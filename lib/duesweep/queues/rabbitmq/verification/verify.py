"""Checks a broker's delay ladder; changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from duesweep.checks.finding import Check, Finding, ok, skipped
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.drivers.rabbitmq.management import Management, NotAllowedError
from duesweep.queues.rabbitmq.verification import by_amqp, facts
from duesweep.queues.rabbitmq.verification.broker_rules import broker_findings, version_finding
from duesweep.queues.rabbitmq.verification.delivery_rules import delivery_findings
from duesweep.queues.rabbitmq.verification.facts import BrokerFacts
from duesweep.queues.rabbitmq.verification.ladder_rules import ladder_findings, waiting_findings


@dataclass(frozen=True, slots=True)
class Verification:
    """Checks one vhost. Without `management_url`, only what AMQP tells."""

    brokers: Brokers
    management_url: str | None

    def findings(self) -> Iterator[Finding]:
        """What is right and what is not. Raises `DuesweepError` if the broker is out of reach or
        refuses this user.
        """
        setting = self.brokers.setting
        with RabbitMqConnection(self.brokers) as connection:
            yield ok(Check.SERVER_REACHABLE, setting, "It lets this user in")
            if self.management_url is None:
                yield from _by_amqp(connection, setting)
                return
        yield from self._by_management(Management(self.management_url, self.brokers))

    def _by_management(self, api: Management) -> Iterator[Finding]:
        found = _facts(api)
        yield from broker_findings(self.brokers.setting, found)
        yield from ladder_findings(found)
        yield from delivery_findings(found)
        yield from waiting_findings({name: q.messages for name, q in found.queues.items()})


def _by_amqp(connection: RabbitMqConnection, setting: str) -> Iterator[Finding]:
    channel = Channel(connection)
    yield version_finding(setting, connection.server_version)
    yield from by_amqp.ladder_findings(channel)
    yield from waiting_findings(by_amqp.count_messages(channel))
    yield skipped(
        Check.MANAGEMENT_API,
        f"{setting}.management_url",
        "It is not set. AMQP does not tell about bindings, endpoints that can take nothing, "
        "policies, feature flags and alarms: these were not checked",
    )


def _facts(api: Management) -> BrokerFacts:
    return BrokerFacts(
        api.ask("overview")["rabbitmq_version"],
        _feature_flags(api),
        _alarms(api),
        facts.exchange_facts(api.ask("exchanges/{vhost}")),
        facts.queue_facts(api.ask("queues/{vhost}")),
        facts.bindings(api.ask("bindings/{vhost}")),
    )


def _feature_flags(api: Management) -> dict[str, bool] | None:
    try:
        return {flag["name"]: flag["state"] == "enabled" for flag in api.ask("feature-flags")}
    except NotAllowedError:
        return None


def _alarms(api: Management) -> list[str] | None:
    try:
        return facts.alarms(api.ask("nodes"))
    except NotAllowedError:
        return None
