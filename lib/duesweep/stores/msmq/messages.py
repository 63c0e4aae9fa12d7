"""A session for one message at a time on the MSMQ transport's delayed message store."""

import uuid

from duesweep.headers import xml as headers_xml
from duesweep.message import MESSAGE_ID
from duesweep.stores.msmq.task import MsmqTaskSession
from duesweep.stores.sqlserver.messages import OneByOne
from duesweep.stores.sqlserver.statements import due_text
from duesweep.stores.values import NewMessage


class MsmqMessageSession(MsmqTaskSession, OneByOne):
    """The message's id is its key, as the transport has it; one without gets a new one."""

    def __enter__(self) -> "MsmqMessageSession":
        return self

    def store(self, message: NewMessage) -> str:
        """Store a message until it is due; its key."""
        key = message.headers.get(MESSAGE_ID) or str(uuid.uuid4())
        self._statements.execute(
            "store_msmq_message",
            message_key=key,
            destination=message.destination,
            due=due_text(message.due, "milliseconds"),
            headers=headers_xml.write(message.headers),
            body=message.body,
        )
        return key
