"""The blocking client: the same calls for code without an event loop.

Design: one thread runs an event loop with an `AsyncClient`; every call hands a coroutine to it and waits. So a call
costs two thread hops: whoever needs more than some ten thousand calls a second uses `Producer.send_async`, which
collects what is handed over and crosses once for many, `Consumer.batch_receive`, or the asyncio client.

All objects may be used from several threads. Callbacks run on the client's thread: they must not block, and must not
call back into blocking methods.
"""

from .client import Client
from .consumer import Consumer
from .producer import Producer
from .reader import Reader
from .table_view import TableView

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView"]
