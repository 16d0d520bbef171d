"""Credentials of functions under isolation: their own token they read, and no other."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import httpx
import jwt
import pytest
from magnetar.instance.system_user import SystemUser

from tests.support.isolated import TENANTS, Deployed, data_of
from tests.support.servers import server as a_server

pytestmark = pytest.mark.slow
KEY = b"k" * 32


def bearer(role: str) -> dict[str, str]:
    token = jwt.encode({"sub": role, "exp": int(time.time()) + 3600}, KEY, "HS256")
    return {"Authorization": f"Bearer {token}"}


def test_instance_reads_the_token_of_its_own_tenant_and_no_other(
    open_directory: Path, users: tuple[SystemUser, SystemUser]
) -> None:
    config = open_directory / "secured.yml"
    config.write_text(
        "authenticationEnabled: true\nauthorizationEnabled: true\nsuperUserRoles: [admin]\n"
        "authenticationProviders: [org.apache.pulsar.broker.authentication.AuthenticationProviderToken]\n"
        f"tokenSecretKey: data:;base64,{base64.b64encode(KEY).decode()}\n"
        f"processRuntimeUsers: {{one: {users[0].name}, two: {users[1].name}}}\n"
    )
    server = a_server("standalone", open_directory / "secured", "--config", str(config))
    try:
        server.start()
        for tenant in TENANTS:
            body = {"allowedClusters": ["standalone"], "adminRoles": [f"{tenant}-admin"]}
            admin = {"base_url": f"{server.web_url}/admin/v2/", "headers": bearer("admin")}
            with httpx.Client(**admin) as http:  # type: ignore[arg-type]
                http.put(f"tenants/{tenant}", json=body).raise_for_status()
                http.put(f"namespaces/{tenant}/code", json={}).raise_for_status()
        answers = {}
        for tenant in TENANTS:
            with Deployed(server, tenant) as deployed:
                deployed.http.headers.update(bearer(f"{tenant}-admin"))
                deployed.deploy("obeys")
                files = [str(file) for file in (data_of(server) / "worker" / "run" / "tokens").iterdir()]
                answers[tenant] = deployed.run(
                    "obeys",
                    f"""
                    import os
                    result = [os.getuid(), []]
                    for file in {files!r}:
                        try:
                            result[1].append([file, len(open(file).read())])
                        except OSError:
                            pass
                    """,
                )
        for tenant, user in zip(TENANTS, users, strict=True):
            uid, read = answers[tenant]
            assert uid == user.uid
            assert [Path(file).name.rpartition("-")[2] for file, _ in read] == [str(user.uid)]
    finally:
        server.stop()
