"""Addresses that a broker advertises to clients, as far as its settings define them."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..errors import ServiceNotReady
from .config import BrokerConfig
from .listeners import OWN_LISTENER, url_host


class Advertised:
    """Addresses that lookups return.

    Attributes:
        own_url: address for the worker of a standalone; empty without such a socket.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._listeners = config.advertised_listeners
        self._internal = config.internal_listener or next(iter(config.advertised_listeners), "")
        self._address = config.advertised_address
        self.own_url = ""

    @property
    def host(self) -> str:
        """The host in the broker id, or an empty string if the settings do not define one."""
        if self._address:
            return url_host(self._address)
        urls = self._listeners.get(self._internal, {})
        url = urlsplit(urls.get("pulsar") or urls.get("pulsar+ssl") or next(iter(urls.values()), ""))
        return url_host(url.hostname or "")

    @property
    def hosts(self) -> tuple[str, ...]:
        """All advertised hosts of the broker, without brackets."""
        urls = [url for one in self._listeners.values() for url in one.values()]
        hosts = [self._address, *(urlsplit(url).hostname or "" for url in urls)]
        return tuple(dict.fromkeys(host for host in hosts if host))

    def url(self, scheme: str, port: int | None, listener: str = "") -> str | None:
        """Return the address for a scheme as ``scheme://host:port``.

        Args:
            scheme: URL scheme, such as ``pulsar``.
            port: the port that the broker listens on, or None.
            listener: the listener that the client requested or connected to; empty for the internal one.

        Returns:
            The address, an empty string if the listener has none with this scheme, or None if the settings define none.

        Raises:
            ServiceNotReady: the listener does not exist.
        """
        if listener == OWN_LISTENER and self.own_url:
            return self.own_url if scheme == "pulsar" else ""
        if listener:
            if listener not in self._listeners:
                # Clients search for this text, which is Pulsar's.
                raise ServiceNotReady(f"the broker do not have {listener} listener")
            return self._listeners[listener].get(scheme, "")
        names = (self._internal, *self._listeners)
        found = next((self._listeners[name][scheme] for name in names if scheme in self._listeners.get(name, {})), None)
        if found is None and self._address and port is not None:
            return f"{scheme}://{url_host(self._address)}:{port}"
        return found
