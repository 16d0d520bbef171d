"""The blocking client: the asyncio client's API for code without an event loop.

Design: a background thread runs an event loop with an `AsyncClient`; every call submits a coroutine to it and waits, so
a call costs two thread hops. For more than about ten thousand calls a second use `Producer.send_async`, which batches
submissions, `Consumer.batch_receive`, or the asyncio client.

All objects are thread-safe. Callbacks run on the client's thread: they must not block or call blocking methods.
"""

from .client import Client
from .consumer import Consumer
from .producer import Producer
from .reader import Reader
from .table_view import TableView

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView"]
