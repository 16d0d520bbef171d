"""Brokers with authentication and TLS, and the outcome of a CONNECT to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.server_tls_settings import ServerTls
from magnetar.wire.pulsar_api_pb2 import ServerError

from ..support.certificates import Authority, Certificate
from ..support.tokens import PROVIDER_TOKEN, SECRET, data_url, token
from .brokers import running_broker
from .raw import Raw

GOLDEN = Path(__file__).parent.parent / "golden/auth/client-matrix.jsonl"
ROWS = [row for line in GOLDEN.read_text().splitlines() if (row := json.loads(line))["view"] == "wire"]
MINUS_1 = (1 << 64) - 1
FAILED = ("AuthenticationError", "Failed to authenticate")
INVALID = ("AuthorizationError", "Invalid roles.")
HTPASSWD = data_url(
    b"producer:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/\nconsumer:rqXexS6ZhobKA\nsha:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="
)


def settings(**given: Any) -> ServerSecurity:
    defaults: dict[str, Any] = {
        "enabled": True, "providers": (PROVIDER_TOKEN,), "token_secret_key": data_url(SECRET),
        "proxy_roles": ("proxy",), "refresh_check_s": 0.1,
    }  # fmt: skip
    return ServerSecurity(**(defaults | given))


def secured(directory: Path, **given: Any) -> contextlib.AbstractAsyncContextManager[BrokerService]:
    return running_broker(directory, security=settings(**given))


def answers_of(group: str) -> dict[str, Any]:
    return {row["case"]: row for row in ROWS if row.get("group") == group}


async def connect(raw: Raw, **fields: Any) -> tuple[str, ...]:
    """What comes of a CONNECT: ``("CONNECTED",)``, or code and text of the error, after which the broker closes."""
    raw.send("CONNECT", client_version="raw", protocol_version=21, **fields)
    return await outcome(raw)


async def outcome(raw: Raw) -> tuple[str, ...]:
    command = (await raw.receive()).command
    if command.HasField("connected"):
        return ("CONNECTED",)
    assert command.error.request_id == MINUS_1
    assert await raw.is_closed()
    return ServerError.Name(command.error.error), command.error.message


def with_token(shown: str, **more: Any) -> dict[str, Any]:
    return {"auth_method_name": "token", "auth_data": shown.encode()} | more


GOOD = with_token(token("superuser"))
PROXY = with_token(token("proxy"))


def recorded(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the recorded answer to a CONNECT."""
    first = row["answers"][0] if "answers" in row else row["answer"].get("connect", "CONNECTED")
    if isinstance(first, str):
        return tuple(first.split()[1:]) if first.startswith("ERROR") else ("CONNECTED",)
    error = first.get("error")
    if error is None:
        return ("CONNECTED",)
    return (error["error"], error["message"]) if isinstance(error, dict) else (error, first["message"])


@contextlib.contextmanager
def closing_all() -> Iterator[None]:
    """Close all bare connections of a test when it ends."""
    opened: list[Raw] = []
    init = Raw.__init__

    def note(raw: Raw, *streams: Any) -> None:
        init(raw, *streams)
        opened.append(raw)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Raw, "__init__", note)
        yield
    for raw in opened:
        raw.writer.transport.abort()


class Site:
    """A CA with a server certificate, and a broker that accepts TLS connections."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ca")
        self.certificate = self.authority.issue("server")

    def tls(self, **given: Any) -> ServerTls:
        defaults: dict[str, Any] = {
            "certificate_file": str(self.certificate.file), "key_file": str(self.certificate.key_file),
            "trust_certs_file": str(self.authority.file), "refresh_check_s": 0.05,
        }  # fmt: skip
        return ServerTls(**(defaults | given))

    def client(self, certificate: Certificate | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        if certificate is not None:
            context.load_cert_chain(certificate.file, certificate.key_file)
        return context

    @contextlib.asynccontextmanager
    async def broker(
        self, directory: Path, security: ServerSecurity | None = None, **tls: Any
    ) -> AsyncIterator[BrokerService]:
        known: dict[str, Any] = {} if security is None else {"security": security}
        async with running_broker(directory, broker_tls_port=0, tls=self.tls(**tls), **known) as broker:
            yield broker

    async def open(self, broker: BrokerService, context: ssl.SSLContext, host: str = "localhost") -> Raw:
        """Open a TLS connection."""
        assert broker.tls_port is not None
        streams = await asyncio.open_connection("127.0.0.1", broker.tls_port, ssl=context, server_hostname=host)
        return Raw(*streams)
