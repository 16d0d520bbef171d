"""Brokers with the settings of a `Site`: ours, or a separate Apache Pulsar."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.secured_site import Site
from tests.support.ports import Reserved
from tests.support.pulsar import of_environment, started
from tests.support.servers import running


@contextlib.contextmanager
def open_site(kind: str, directory: Path, *, is_public: bool) -> Iterator[Site]:
    """A secured broker with everything that it needs."""
    site = Site(directory, is_public=is_public)
    with contextlib.ExitStack() as opened:
        if kind == "ours":
            more = {"brokerServicePortTls": "0", "webServicePortTls": "0", "tlsCrlFilePath": str(site.crl_file)}
            file = directory / "broker.conf"
            file.write_text("".join(f"{key}={value}\n" for key, value in (site.settings() | more).items()))
            found = opened.enter_context(running("broker", directory / "broker", "--config", str(file))).addresses
            names = ("brokerServiceUrl", "brokerServiceUrlTls", "webServiceUrl", "webServiceUrlTls")
            urls = [str(found[name]) for name in names]
        else:
            pulsar = of_environment(directory)
            if pulsar is None:
                pytest.skip("no Apache Pulsar: make test-clients PULSAR=…")
            pulsar.require_starter("has settings of its own")
            ports = opened.enter_context(contextlib.nullcontext(Reserved(2)))
            tls_port, web_tls_port = ports.numbers
            more = {"brokerServicePortTls": str(tls_port), "webServicePortTls": str(web_tls_port)}
            pulsar.flags = ()
            pulsar.headers = {"authorization": f"Bearer {site.super_token()}"}
            pulsar.settings = tuple(f"{key}={value}" for key, value in (site.settings() | more).items())
            opened.enter_context(started(pulsar))
            urls = [pulsar.service_url, f"//127.0.0.1:{tls_port}", pulsar.web_url, f"//127.0.0.1:{web_tls_port}"]
        site.addresses = dict(
            zip(("plain", "tls", "web", "web_tls"), (url.partition("//")[2].rstrip("/") for url in urls), strict=True)
        )
        opened.enter_context(site.issuing())
        opened.enter_context(site.renewing())
        site.prepare()
        yield site
