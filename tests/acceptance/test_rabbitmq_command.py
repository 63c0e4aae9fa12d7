"""`./spark-submit.sh rabbitmq …`, as a person runs it."""

from duesweep.queues.rabbitmq import topology
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import arguments
from support.spark_submit import run


def test_commands_on_rabbitmq_need_no_java(broker: Broker) -> None:
    created = run(*arguments(broker, "delays", "create"), JAVA_HOME="/nonexistent")
    assert created.returncode == 0, created.stderr
    assert len(created.stdout.splitlines()) == 2 * topology.LEVELS + 1
    assert created.stderr == ""

    broker.channel.queue_delete(topology.level_name(3))
    verified = run(*arguments(broker, "delays", "verify"), JAVA_HOME="/nonexistent")
    assert (verified.returncode, verified.stderr) == (3, "")
    assert "There is no such queue" in verified.stdout

    migrated = run(*arguments(broker, "delays", "migrate"), JAVA_HOME="/nonexistent")
    assert (migrated.returncode, migrated.stderr) == (0, "")
    assert "nothing to migrate" in migrated.stdout
