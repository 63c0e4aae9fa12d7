"""Queues on RabbitMQ, as they are configured."""

import json

import pytest

from duesweep.config import Config, load, mask_secrets
from duesweep.errors import ConfigError
from support.config_files import MINIMAL, file_of, without_place

URL = "amqps://sweeper:s3cret@mq.example:5671/sales"
OTHER = "amqps://sweeper:0ther@mq2.example:5671/sales"
RABBITMQ = f"""{MINIMAL}
[queues.default]
kind = "rabbitmq"
"""


def _urls(config: Config) -> tuple[str, ...]:
    return config.queues["default"].urls


def _refused(*settings: str, text: str = RABBITMQ) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file_of(text), settings)
    return without_place(str(caught.value))


def test_one_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__URL", URL)

    assert _urls(load(file_of(RABBITMQ))) == (URL,)


def test_list_of_urls_comes_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__URL", json.dumps([URL, OTHER]))

    assert _urls(load(file_of(RABBITMQ))) == (URL, OTHER)


@pytest.mark.parametrize(
    ("written", "urls"), [(f'"{URL}"', (URL,)), (f'["{OTHER}", "{URL}"]', (OTHER, URL))]
)
def test_file_gives_one_url_or_several_in_their_order(written: str, urls: tuple[str, ...]) -> None:
    assert _urls(load(file_of(f"{RABBITMQ}url = {written}\n"))) == urls


def test_everything_but_the_url_has_a_default() -> None:
    (queue,) = load(file_of(RABBITMQ), [f"queues.default.url={URL}"]).queues.values()

    assert (queue.topology, queue.max_in_flight) == ("conventional", 2000)
    assert (queue.ca_file, queue.client_certificate, queue.client_key) == (None, None, None)
    assert queue.management_url is None


@pytest.mark.parametrize("written", [f'"{URL}"', f'["{URL}", "{OTHER}"]'])
def test_urls_are_masked_for_people_and_in_every_repr(written: str) -> None:
    management = f'management_url = "{OTHER}"\n'
    config = load(file_of(f"{RABBITMQ}url = {written}\n{management}"))

    shown = json.dumps(mask_secrets(config)) + repr(config) + str(config) + config.model_dump_json()

    assert "s3cret" not in shown
    assert "0ther" not in shown
    assert "mq.example" not in shown


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "queues.default.url is not set; give it, as in amqps://user@host:5671/vhost"),
        (["queues.default.url="], "queues.default.url is wrong: it is empty"),
        (["queues.default.url.x=1"], "queues.default.url is wrong: input should be a valid"),
        (["queues.default.dsn=x"], "queues.default.dsn has no effect on RabbitMQ"),
        (["queues.default.schema=x"], "queues.default.schema has no effect on RabbitMQ"),
        (
            ["queues.default.readable_body=true"],
            "queues.default.readable_body has no effect on RabbitMQ",
        ),
        (["queues.default.topology=fanout"], "queues.default.topology is wrong"),
        (["queues.default.max_in_flight=0"], "queues.default.max_in_flight is wrong"),
        (
            [f"queues.default.url={URL}", "queues.default.client_key=key.pem"],
            "client_key is set without client_certificate",
        ),
        (
            ["queues.default.url=amqp://u:s3cret@host/v", "queues.default.ca_file=ca.pem"],
            "ca_file is set, but has no effect on a url that does not begin with amqps:",
        ),
        (
            ["queues.default.kind=postgresql", "queues.default.topology=direct"],
            'queues.default.topology has no effect without kind = "rabbitmq"',
        ),
    ],
)
def test_setting_that_cannot_be_meant_is_refused(settings: list[str], words: str) -> None:
    refusal = _refused(*settings)

    assert words in refusal
    assert "s3cret" not in refusal


def test_one_url_without_tls_is_enough_to_refuse_certificates() -> None:
    urls = f'url = ["{URL}", "amqp://u:0ther@host/v"]\nca_file = "ca.pem"\n'

    refusal = _refused(text=RABBITMQ + urls)

    assert "queues.default.ca_file is set" in refusal
    assert "0ther" not in refusal


def test_looking_ahead_needs_a_rabbitmq() -> None:
    assert "sweep.look_ahead_seconds is set" in _refused(
        "sweep.look_ahead_seconds=60", text=MINIMAL
    )


def test_looking_ahead_is_meant_with_a_rabbitmq() -> None:
    settings = ["sweep.look_ahead_seconds=60", f"queues.default.url={URL}"]

    assert load(file_of(RABBITMQ), settings).sweep.look_ahead_seconds == 60
