"""The blocking client, which creates blocking producers, consumers and readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import ClosedError
from ...wire.message_id import MessageId
from ..client import AsyncClient
from ..config import ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig
from ..consumers.consumer import Consumer as AsyncConsumer
from ..consumers.merged import MergedConsumer
from ..consumers.received import Message
from ..listener_threads import ListenerThreads
from ..schemas.schema import Schema, SchemaInfo
from ..typed.consumer import TypedConsumer
from .consumer import Consumer
from .loop_thread import LoopThread
from .producer import Producer
from .reader import Reader
from .table_view import TableView

if TYPE_CHECKING:
    from ..deploy.functions import Functions


class Client:
    """A blocking client of a cluster."""

    def __init__(self, service_url: str, config: ClientConfig | None = None, *, admin_url: str | None = None):
        """Start the client's thread. Connections are opened on demand.

        Args:
            service_url: ``pulsar://host:port``, or ``pulsar+ssl://host:port`` with TLS; several hosts separated by
                commas.
            config: settings.
            admin_url: ``http://host:port`` or ``https://…`` of the REST interface, used by `functions` with the same
                credentials. None means port 8080 for a broker on port 6650, or 8443 with TLS for 6651.

        Raises:
            InvalidConfig: an address is invalid, or the settings contradict it.
        """
        self._listeners = ListenerThreads((config or ClientConfig()).message_listener_threads)
        self._thread = LoopThread()
        try:
            self._client = self._thread.call(_make_client(service_url, config, admin_url))
        except BaseException:
            self._thread.stop()
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: create one in each process")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def functions(self) -> Functions:
        """The cluster's functions: deploy, inspect and delete them."""
        from ..deploy.functions import Functions  # imports httpx and cloudpickle

        return Functions(self._thread, self._client.functions)

    def create_producer(
        self, topic: str, config: ProducerConfig | None = None, *, schema: Schema[Any] | None = None
    ) -> Producer:
        """Create a producer for a topic. With a schema, it sends values instead of bytes.

        Args:
            topic: topic name.
            config: settings.
            schema: encodes values; the broker checks that it is compatible with the topic's schema.

        Raises:
            IncompatibleSchema: ``schema`` is incompatible with the topic's schema.
            BrokerError: the broker rejected the request (`ProducerBusy`, `ProducerFenced`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        if schema is None:
            return Producer(self._thread, self._thread.call(self._client.create_producer(topic, config)))
        typed = self._thread.call(self._client.create_producer(topic, config, schema=schema))
        return Producer(self._thread, typed.producer, typed.schema)

    def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription_name: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Callable[[Consumer, Message], object] | None = None,
        schema: Schema[Any] | None = None,
    ) -> Consumer:
        """Subscribe to a topic (with all its partitions), to several topics, or to all topics that match a pattern.

        Args:
            topic: a name, several names, or a pattern of whole names such as ``tenant/namespace/orders-.*``, which also
                matches topics created later.
            subscription_name: subscription name.
            config: settings.
            message_listener: called with the consumer and each message, one at a time, on one of the client's listener
                threads; it may call any method of the client. `Consumer.receive` is then unavailable.
            schema: decodes messages, which then have a `value`.

        Raises:
            IncompatibleSchema: the topic has a schema that ``schema`` cannot read.
            BrokerError: the broker rejected the request (`ConsumerBusy`, `TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        inner: AsyncConsumer | MergedConsumer | TypedConsumer[Any]
        if schema is None:
            inner = self._thread.call(self._client.subscribe(topic, subscription_name, config))
        else:
            inner = self._thread.call(self._client.subscribe(topic, subscription_name, config, schema=schema))
        consumer = Consumer(self._thread, inner)
        if message_listener is not None:
            consumer.listen(self._client, self._listeners.lane(), message_listener)
        return consumer

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        config: ReaderConfig | None = None,
        *,
        schema: Schema[Any] | None = None,
    ) -> Reader:
        """Create a reader for a non-partitioned topic, or for one partition.

        Args:
            topic: topic name.
            start_message_id: EARLIEST, LATEST or a message; reading starts after it, or at it with ``start_inclusive``.
            config: settings. ``start_inclusive`` with LATEST starts at the newest message.
            schema: decodes messages, which then have a `value`.

        Raises:
            InvalidConfig: the topic is partitioned.
            IncompatibleSchema: the topic has a schema that ``schema`` cannot read.
            BrokerError: the broker rejected the request (`TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        call = self._thread.call
        if schema is None:
            return Reader(self._thread, call(self._client.create_reader(topic, start_message_id, config)))
        return Reader(self._thread, call(self._client.create_reader(topic, start_message_id, config, schema=schema)))

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, *, schema: Schema[Any] | None = None
    ) -> TableView:
        """Create a table view of a topic, which contains everything published before the call.

        Args:
            topic: topic name; the topic may be partitioned.
            subscription_name: subscription name of the view's readers; None generates random names.
            schema: decodes the values.

        Raises:
            IncompatibleSchema: the topic has a schema that ``schema`` cannot read.
            BrokerError: the broker rejected the request (`TopicNotFound`, …).
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        inner = self._thread.call(self._client.create_table_view(topic, subscription_name, schema=schema))
        return TableView(self._thread, inner, self._listeners)

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the full names of a topic's partitions, or the topic's own full name if it is not partitioned."""
        return self._thread.call(self._client.partitions(topic))

    def get_schema_info(self, topic: str, version: bytes | None = None) -> SchemaInfo:
        """Return a topic's schema.

        Args:
            topic: topic name.
            version: the schema version, as in messages; None for the newest.

        Raises:
            TopicNotFound: the topic has no schema of that version.
            ConnectionLost, OperationTimeout: no broker was reached within ``operation_timeout_s``.
        """
        return self._thread.call(self._client.topic_schema(topic, version))

    def close(self) -> None:
        """Close all objects that this client created, its connections and its thread; a second call does nothing."""
        try:
            self._thread.call(self._client.close())
        except ClosedError:
            return
        finally:
            self._thread.stop()
            self._listeners.stop()


async def _make_client(service_url: str, config: ClientConfig | None, admin_url: str | None) -> AsyncClient:
    return AsyncClient(service_url, config, admin_url=admin_url)
