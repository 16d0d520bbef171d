"""Shared parts of the ``rabbitmq`` source and sink: connection settings, and a connection with its own thread.

The thread responds to heartbeats while the pipeline is busy, and runs the callbacks. Shared state is guarded by one
condition (`RabbitConnection.condition`). When the thread ends, for any reason, it sets `RabbitConnection.trouble` and
wakes all waiters.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..api.connector import Retry
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need

SHORT_TEXT_MAX = 255  # maximum bytes of a name in AMQP
_CLOSE_S = 5.0


@dataclass(kw_only=True)
class RabbitConfig:
    """Connection settings of the ``rabbitmq`` connectors."""

    host: str = option("Server host.")
    port: int = option("Server port.", default=5672, limits=(1, 65_535))
    virtual_host: str = option("Virtual host.", default="/")
    username: str = option("User name.", default="guest", secret=True)
    password: str = option("Password of the user.", default="guest", secret=True)
    connection_name: str = option("Name of the connection on the server; empty for the connector's name.", default="")
    requested_channel_max: int = option(
        "Maximum number of channels; 0 for the server's limit.", default=0, limits=(0, 65_535)
    )
    requested_frame_max: int = option(
        "Maximum frame size in bytes; 0 for the server's limit.", default=0, limits=(0, 131_072)
    )
    connection_timeout: int = option("Connection timeout in milliseconds.", default=60_000, limits=(100, 600_000))
    handshake_timeout: int = option(
        "Timeout for the handshake and for responses, in milliseconds.", default=10_000, limits=(100, 600_000)
    )
    requested_heartbeat: int = option(
        "Interval between heartbeats, in seconds; 0 for no heartbeats.", default=60, limits=(0, 3600)
    )
    ssl: bool = option("Whether to use TLS.", default=False)
    ssl_ca_file: str = option("PEM file with trusted CA certificates; empty for the system certificates.", default="")
    key_header: str = option("Header that contains the record key; empty for no key.", default="pulsar-key")


def check(config: RabbitConfig) -> None:
    """Raise InvalidConfig, with the option name, for invalid or contradictory settings."""
    if not config.host.strip() or "/" in config.host:
        raise InvalidConfig(f"invalid host {config.host!r}: expected a host name or address")
    if 0 < config.requested_frame_max < 4096:
        raise InvalidConfig("requestedFrameMax must be 0 or at least 4096")
    if config.ssl_ca_file and not config.ssl:
        raise InvalidConfig("sslCaFile requires ssl")
    check_name("keyHeader", config.key_header)


def check_name(key: str, text: str) -> None:
    """Raise InvalidConfig if a string is too long for a name in AMQP."""
    if fault := fault_of_name(text):
        raise InvalidConfig(f"{key} {fault}")


def fault_of_name(text: str) -> str:
    """Return why a string is not a valid name in AMQP, or an empty string."""
    length = len(text.encode(errors="surrogatepass"))
    return f"must not exceed {SHORT_TEXT_MAX} bytes, but has {length}" if length > SHORT_TEXT_MAX else ""


class RabbitConnection:
    """A connection with one channel, from `connect` to `close`.

    Attributes:
        condition: guards the state changed by callbacks, which notify it.
        trouble: why the connection or the channel is closed; empty while it is open.
        refusal: code with which the server closed the channel, or 0.
        frame_max: maximum frame size in bytes, which also limits a message's properties.
        blocked: why the server has blocked the connection, or an empty string.
        channel: the library's channel, to be used only on the library's thread (`call`).
    """

    def __init__(self, config: RabbitConfig, name: str) -> None:
        """Create an unconnected connection."""
        self.condition = threading.Condition()
        self.trouble = ""
        self.refusal = 0
        self.blocked = ""
        self.frame_max = 4096
        self.channel: Any = None
        self._config = config
        self._where = f"{config.host}:{config.port}"
        self._is_open = False
        self._is_closing = False
        pika = self._pika = need("rabbitmq", "pika")
        more: dict[str, Any] = {}
        if config.requested_channel_max:
            more["channel_max"] = config.requested_channel_max
        if config.requested_frame_max:
            more["frame_max"] = config.requested_frame_max
        if config.ssl:
            try:
                context = ssl.create_default_context(cafile=config.ssl_ca_file or None)
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(f"cannot read sslCaFile {config.ssl_ca_file!r}: {error}") from error
            more["ssl_options"] = pika.SSLOptions(context, config.host)
        self._parameters = pika.ConnectionParameters(
            config.host,
            config.port,
            config.virtual_host,
            pika.PlainCredentials(config.username, config.password),
            heartbeat=config.requested_heartbeat,
            socket_timeout=config.connection_timeout / 1000,
            stack_timeout=(config.connection_timeout + config.handshake_timeout) / 1000,
            connection_attempts=1,
            client_properties={"connection_name": config.connection_name or name},
            **more,
        )
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq {name}", daemon=True)

    def connect(self) -> None:
        """Connect and open the channel.

        Raises:
            Retry: the server is unavailable or rejects the login.
        """
        self._thread.start()
        seconds = (self._config.connection_timeout + self._config.handshake_timeout) / 1000
        self.wait(lambda: self._is_open, seconds, "open channel")

    def call(self, action: Callable[[], object]) -> None:
        """Schedule an action on the library's thread.

        Raises:
            Retry: the connection is closed.
        """
        self.raise_if_gone()

        def run() -> None:
            try:
                action()
            except Exception as error:  # noqa: BLE001  every library error is passed to the waiter
                self._fail(f"{type(error).__name__}: {error}")

        try:
            self._connection.ioloop.add_callback_threadsafe(run)
        except Exception as error:  # a loop that has just been closed raises various errors
            raise Retry(f"{self._where}: {error}") from error

    def ask(self, action: Callable[[Callable[[Any], None]], object], what: str) -> Any:
        """Call a channel method and return the server's response.

        Args:
            action: calls the method with the given callback.
            what: name of the expected response, for error messages.
        """
        answers: list[Any] = []

        def answered(frame: Any) -> None:
            with self.condition:
                answers.append(frame)
                self.condition.notify_all()

        self.call(lambda: action(answered))
        self.wait(lambda: bool(answers), self._config.handshake_timeout / 1000, what)
        return answers[0]

    def wait(self, is_there: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for the effect of a callback.

        Raises:
            Retry: the wait timed out, or the connection is closed.
        """
        deadline = time.monotonic() + seconds
        with self.condition:
            while not is_there():
                self.raise_if_gone()
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    blocked = f"; the server has blocked the connection: {self.blocked}" if self.blocked else ""
                    raise Retry(f"{self._where}: no {what} within {seconds:g} s{blocked}")
                self.condition.wait(min(left_s, 1.0))

    def raise_if_gone(self) -> None:
        """Raise Retry if the connection or the channel is closed."""
        if self.trouble:
            raise Retry(f"{self._where}: {self.trouble}")

    def close(self) -> None:
        """Close the connection, and wait until its thread has ended."""
        self._is_closing = True
        if not self._thread.is_alive():
            return
        connection = self._connection
        if connection is not None:
            with suppress(Exception):  # the loop is already closed
                connection.ioloop.add_callback_threadsafe(self._close_or_stop)
        self._thread.join(_CLOSE_S)

    # -- on the library's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._connection = self._pika.SelectConnection(
                self._parameters,
                on_open_callback=self._on_open,
                on_open_error_callback=self._on_open_error,
                on_close_callback=self._on_close,
            )
            self._connection.ioloop.start()
        except BaseException as error:  # noqa: BLE001  reported as the reason why the thread ended
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._fail("connection closed")
        finally:
            if self._connection is not None:
                with suppress(Exception):
                    self._connection.ioloop.close()

    def _close_or_stop(self) -> None:
        if self._connection.is_open:
            self._connection.close()
        elif not self._connection.is_closing:
            self._connection.ioloop.stop()

    def _fail(self, trouble: str) -> None:
        with self.condition:
            self.trouble = self.trouble or trouble
            self.condition.notify_all()

    def _on_open(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self.frame_max = connection.params.frame_max or self.frame_max
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        channel.add_on_close_callback(self._on_channel_close)
        with self.condition:
            self.channel = channel
            self._is_open = True
            self.condition.notify_all()

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        with self.condition:
            self.blocked = frame.method.reason

    def _on_unblocked(self, _connection: Any, _frame: Any) -> None:
        with self.condition:
            self.blocked = ""

    def _on_open_error(self, connection: Any, error: Any) -> None:
        causes = getattr(error, "args", ())
        cause = causes[0] if causes else error
        self._fail(_text(getattr(cause, "exception", None) or cause))
        connection.ioloop.stop()

    def _on_close(self, connection: Any, reason: Any) -> None:
        self._fail(f"connection lost: {_text(reason)}")
        connection.ioloop.stop()

    def _on_channel_close(self, _channel: Any, reason: Any) -> None:
        with self.condition:
            self.refusal = getattr(reason, "reply_code", 0) if not self._is_closing else 0
        self._fail(f"channel closed: {_text(reason)}")


def _text(reason: Any) -> str:
    text = getattr(reason, "reply_text", "") or str(reason) or repr(reason)
    return f"{type(reason).__name__}: {text}" if isinstance(reason, Exception) else str(text)
