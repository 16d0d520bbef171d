"""Functions requests through the broker's port by callers that are known by their client certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import Authority, Certificate
from tests.support.servers import running
from tests.support.tokens import PROVIDER_TLS, PROVIDER_TOKEN, SECRET, data_url, token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_worker_of_standalone_knows_a_caller_by_the_certificate_that_the_broker_saw(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("server")
    config = tmp_path / "standalone.conf"
    config.write_text(
        f"webServicePortTls=0\ntlsCertificateFilePath={server.file}\ntlsKeyFilePath={server.key_file}\n"
        f"tlsTrustCertsFilePath={authority.file}\nauthenticationEnabled=true\nauthorizationEnabled=true\n"
        f"authenticationProviders={PROVIDER_TLS},{PROVIDER_TOKEN}\ntokenSecretKey={data_url(SECRET)}\n"
        "superUserRoles=admin\nbrokerClientAuthenticationPlugin=token\n"
        f"brokerClientAuthenticationParameters=token:{token('admin')}\n"
    )

    def context(certificate: Certificate | None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(authority.file))
        if certificate is not None:
            made.load_cert_chain(certificate.file, certificate.key_file)
        return made

    with running("standalone", tmp_path / "data", "--config", str(config)) as it:

        def ask(certificate: Certificate | None, **headers: str) -> tuple[int, str]:
            url = f"{it.addresses['webServiceUrlTls']}/admin/v3/functions/public/default"
            answer = httpx.get(url, verify=context(certificate), headers=headers, timeout=60)
            return answer.status_code, answer.text

        assert ask(authority.issue("admin")) == (200, "[]")
        status, text = ask(authority.issue("stranger"))
        assert (status, "Client is not authorized to perform operation" in text) == (401, True)
        assert ask(None, authorization=f"Bearer {token('admin')}") == (200, "[]")
        # The certificate counts first here, and a header cannot make it another role.
        stranger = authority.issue("stranger")
        forged = {"authorization": f"Bearer {token('admin')}", "x-magnetar-forwarded": token("admin")}
        assert ask(stranger, **forged)[0] == 401
        assert ask(None)[0] == 401
        assert ask(None, **{"x-magnetar-forwarded": token("admin")})[0] == 401
        direct = f"{it.worker_url}/admin/v3/functions/public/default"
        assert httpx.get(direct, headers={"x-magnetar-forwarded": token("admin")}).status_code == 401
