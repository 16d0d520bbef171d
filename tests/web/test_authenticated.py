"""401 before anything else, as Pulsar's web server sends it, and the certificate of a client over HTTPS."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.security.authentication.opening import open_authenticator
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.server_tls import TlsServerContext
from magnetar.security.server_tls_settings import ServerTls
from magnetar.web import serve as serving
from magnetar.web.authenticated import METHOD, AuthenticatedRequests
from magnetar.web.call import ROLES
from magnetar.web.serve import serve
from magnetar.worker.config import WorkerConfig
from magnetar.worker.service import WorkerService
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ..support.certificates import Authority
from ..support.eventually import until
from ..support.tokens import PROVIDER_BASIC, PROVIDER_TLS, PROVIDER_TOKEN, SECRET, data_url, token, unsigned

GOLDEN = Path(__file__).parent.parent / "golden/auth/rest-matrix.jsonl"
ROWS = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
HTPASSWD = data_url(b"ann:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/")
FAR = 4_000_000_000


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that says who asks."""
    roles = scope[ROLES]
    named = None if roles is None else [roles.role, roles.original]
    await JSONResponse([named, scope[METHOD]])(scope, receive, send)


@asynccontextmanager
async def served(tls: ServerTls | None = None, **settings: Any) -> AsyncIterator[str]:
    """The address of a server with authentication."""
    given: dict[str, Any] = {
        "enabled": True, "providers": (PROVIDER_TOKEN,), "token_secret_key": data_url(SECRET),
        "basic_auth_conf": HTPASSWD, "proxy_roles": ("proxy",),
    } | settings  # fmt: skip
    authenticator = open_authenticator(ServerSecurity(**given))
    context = TlsServerContext(tls).context if tls is not None else None
    server, port = await serve(AuthenticatedRequests(tell, authenticator), "127.0.0.1", 0, tls=context)
    try:
        yield f"http{'s' if tls else ''}://localhost:{port}"
    finally:
        await server.stop()
        if authenticator is not None:
            authenticator.close()


async def ask(url: str, path: str = "/x", verify: ssl.SSLContext | bool = True, **headers: Any) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(base_url=url, trust_env=False, verify=verify) as client:
        return await client.get(path, headers=named)


def bearer(role: str | None, **claims: Any) -> str:
    return f"Bearer {token(role, **claims)}"


HEADERS: dict[str, dict[str, Any]] = {
    "Bearer ok": {"authorization": bearer("superuser")},
    "bearer lower case": {"authorization": bearer("superuser").replace("Bearer", "bearer")},
    "two blanks": {"authorization": bearer("superuser").replace(" ", "  ")},
    "no scheme": {"authorization": token("superuser")},
    "empty token": {"authorization": "Bearer"},  # blanks at the end are none of the value's
    "garbage token": {"authorization": "Bearer garbage"},
    "HS512 signature with the same 32-byte key": {
        "authorization": f"Bearer {unsigned({'sub': 'superuser'}, {'alg': 'HS512'}, b'0' * 64)}"
    },
    "alg none": {"authorization": f"Bearer {unsigned({'sub': 'superuser'}, {'alg': 'none'})}"},
    "nbf in the future": {"authorization": bearer("superuser", nbf=FAR)},
    "no sub claim": {"authorization": bearer(None)},
    "X-Pulsar-Auth-Method-Name token": {
        "authorization": bearer("superuser"), "x_pulsar_auth_method_name": "token"
    },
    "X-Pulsar-Auth-Method-Name basic (not configured)": {
        "authorization": bearer("superuser"), "x_pulsar_auth_method_name": "basic"
    },
    "Basic header": {"authorization": "Basic " + base64.b64encode(b"superuser:x").decode()},
}  # fmt: skip


async def test_forms_of_credentials_are_answered_as_pulsar_does() -> None:
    rows: dict[str, bool] = {}
    for row in ROWS:
        if row["group"] == "credentials":
            rows.setdefault(row["case"], isinstance(row["body"], str) and row["body"].startswith("<html>"))
    assert rows.keys() == HEADERS.keys()
    async with served() as url:
        for case, is_html in rows.items():
            answer = await ask(url, **HEADERS[case])
            assert answer.status_code == (401 if is_html else 200), case
            if is_html:
                assert answer.headers["content-type"] == "text/html;charset=iso-8859-1"
                assert "<title>Error 401 Authentication required</title>" in answer.text
                assert "www-authenticate" not in answer.headers


async def test_every_path_is_closed_but_metrics() -> None:
    async with served() as url:
        for path in (
            "/",
            "/no/such/path",
            "/docs",
            "/metrics/x",
            "/metricsx",
            "/%6detrics",
            "/x?path=/metrics",
            "//metrics",
        ):
            assert (await ask(url, path)).status_code == 401, path
        for path in ("/metrics", "/metrics/", "/metrics?x=1"):
            assert (await ask(url, path)).json() == [[None, None], ""], path
        assert (await ask(url, "/metrics", authorization=bearer("ann"))).json() == [["ann", None], "token"]
    async with served(authenticate_metrics=True) as url:
        assert (await ask(url, "/metrics")).status_code == 401


async def test_nothing_is_asked_where_authentication_is_off() -> None:
    async with served(enabled=False) as url:
        assert (await ask(url, authorization=bearer("ann"))).json() == [None, ""]


async def test_passwords_audience_and_originals_over_http() -> None:
    settings: dict[str, Any] = {
        "providers": (PROVIDER_TOKEN, PROVIDER_BASIC),
        "token_audience_claim": "aud",
        "token_audience": "px",
    }
    async with served(**settings) as url:
        for scheme in ("Basic", "basic"):
            shown = f"{scheme} {base64.b64encode(b'ann:myPassword').decode()}"
            assert (await ask(url, authorization=shown)).json() == [["ann", None], "basic"]
        wrong = base64.b64encode(b"ann:wrong").decode()
        assert (await ask(url, authorization=f"Basic {wrong}")).status_code == 401
        for audience, status in (("px", 200), (["a", "px"], 200), ("a", 401), (["a"], 401), (None, 401)):
            claims = {} if audience is None else {"aud": audience}
            assert (await ask(url, authorization=bearer("ann", **claims))).status_code == status, audience
        as_proxy: dict[str, Any] = {"authorization": bearer("proxy", aud="px"), "x_original_principal": "ann"}
        assert (await ask(url, **as_proxy)).json() == [["proxy", "ann"], "token"]


async def test_a_certificate_suffices_over_https_as_in_pulsar(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, consumer = authority.issue("server"), authority.issue("consumer")
    tls = ServerTls(
        certificate_file=str(server.file), key_file=str(server.key_file), trust_certs_file=str(authority.file)
    )
    bare = ssl.create_default_context(cafile=str(authority.file))
    shown = ssl.create_default_context(cafile=str(authority.file))
    shown.load_cert_chain(consumer.file, consumer.key_file)
    async with served(tls, providers=(PROVIDER_TOKEN, PROVIDER_BASIC, PROVIDER_TLS)) as url:
        assert (await ask(url, verify=shown)).json() == [["consumer", None], "tls"]
        assert (await ask(url, verify=bare)).status_code == 401
        good: dict[str, Any] = {"authorization": bearer("superuser")}
        assert (await ask(url, verify=shown, **good)).json() == [["superuser", None], "token"]
        assert (await ask(url, verify=bare, **good)).json() == [["superuser", None], "token"]
        async with httpx.AsyncClient(verify=bare, trust_env=False) as client:
            with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
                await client.get(url, extensions={"sni_hostname": "elsewhere.example"})


async def test_a_client_that_does_not_finish_its_handshake_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HANDSHAKE_TIMEOUT_S", 0.2)
    server = Authority(tmp_path).issue("server")
    async with served(ServerTls(certificate_file=str(server.file), key_file=str(server.key_file))) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_worker_asks_before_it_says_that_it_is_not_ready(tmp_path: Path) -> None:
    server = Authority(tmp_path / "ca").issue("server")
    config = WorkerConfig(
        service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:1", data_dir=tmp_path, worker_port=0,
        worker_tls_port=0, broker_wait_s=60,
        tls=ServerTls(certificate_file=str(server.file), key_file=str(server.key_file)),
        security=ServerSecurity(
            enabled=True, providers=("token",), token_secret_key=data_url(SECRET), authenticate_metrics=True
        ),
    )  # fmt: skip
    service = WorkerService(config)
    starting = asyncio.ensure_future(service.start())

    async def listens() -> bool:
        return bool(service.worker_url)

    try:
        await until(listens)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca" / "ca.pem"))
        for url, verify in ((service.worker_url, True), (service.worker_tls_url, trusting)):
            for path in ("/metrics", "/admin/v3/functions/public/default", "/nothing"):
                assert (await ask(url, path, verify)).status_code == 401
                assert (await ask(url, path, verify, authorization=bearer("ann"))).status_code == 503
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await service.stop()
