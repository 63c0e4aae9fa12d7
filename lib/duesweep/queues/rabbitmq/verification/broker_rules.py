"""Rules for the broker itself. No I/O."""

import re
from collections.abc import Iterator

from duesweep.checks.finding import Check, Finding, fault, ok, skipped
from duesweep.queues.rabbitmq.verification.facts import BrokerFacts

# The first version with at-least-once dead-lettering, which needs the feature flag of streams.
_OLDEST = (3, 10)
_FLAGS = ("quorum_queue", "stream_queue")
# From this version on they are always enabled; later versions do not list them.
_FLAGS_ALWAYS = (3, 12)


def version_finding(setting: str, version: str) -> Finding:
    """Whether a delay ladder works on this version of RabbitMQ."""
    if _number(version) < _OLDEST:
        text = f"RabbitMQ {version} lacks at-least-once dead-lettering, which the ladder needs"
        return fault(Check.SERVER_VERSION, setting, text, "Upgrade it to 3.10 or later")
    return ok(Check.SERVER_VERSION, setting, f"RabbitMQ {version}")


def broker_findings(setting: str, facts: BrokerFacts) -> Iterator[Finding]:
    """Whether a delay ladder works on this broker, and whether it takes messages now."""
    yield version_finding(setting, facts.version)
    yield _flags(setting, facts)
    yield _alarms(setting, facts)


def _flags(setting: str, facts: BrokerFacts) -> Finding:
    if facts.feature_flags is None:
        return skipped(Check.FEATURE_FLAGS, setting, "This user may not see feature flags")
    is_always = _number(facts.version) >= _FLAGS_ALWAYS
    lacking = [flag for flag in _FLAGS if not facts.feature_flags.get(flag, is_always)]
    if lacking:
        return fault(
            Check.FEATURE_FLAGS,
            setting,
            f"The ladder needs feature flags that are not enabled: {', '.join(lacking)}",
            f"On one of its nodes: rabbitmqctl enable_feature_flag {lacking[0]}",
        )
    return ok(Check.FEATURE_FLAGS, setting, f"{' and '.join(_FLAGS)} are enabled")


def _alarms(setting: str, facts: BrokerFacts) -> Finding:
    if facts.alarms is None:
        return skipped(Check.BROKER_ALARMS, setting, "This user may not see alarms of nodes")
    if facts.alarms:
        text = f"RabbitMQ takes no messages now: {'; '.join(facts.alarms)}"
        return fault(Check.BROKER_ALARMS, setting, text, "Free memory or disk space there")
    return ok(Check.BROKER_ALARMS, setting, "No node is short of memory or disk space")


def _number(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
