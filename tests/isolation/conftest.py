"""A standalone that runs each tenant's code as a different system user, and functions that run code on request."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.errors import InvalidConfig
from magnetar.instance.system_user import SystemUser
from magnetar.runtime.isolation.users import check_reach

from tests.support.isolated import MARKERS, TENANTS, USERS, Deployed, Run, make_tenant
from tests.support.servers import Server
from tests.support.servers import server as a_server

PROVIDER = """
class Vault:
    def init(self, config):
        self.token = config["token"]

    def provide_secret(self, name, path):
        return f"{path['key']} for {name}" if self.token else None
"""


def user(name: str) -> SystemUser:
    found = pwd.getpwnam(name)
    return SystemUser(name, found.pw_uid, found.pw_gid)


@pytest.fixture(scope="session")
def users() -> tuple[SystemUser, SystemUser]:
    """Two system users; skips if this process cannot switch to them."""
    if os.geteuid() != 0:
        pytest.skip("only root can switch users")
    try:
        one, two = map(user, USERS)
        check_reach((one, two), Path("/"))
    except KeyError as error:
        pytest.skip(f"this machine has no such user: {error}")
    except InvalidConfig as error:
        pytest.skip(str(error))
    return one, two


@pytest.fixture(scope="session")
def open_directory(users: tuple[SystemUser, SystemUser]) -> Iterator[Path]:
    """A directory accessible to every user, unlike pytest's temporary directories."""
    directory = Path(tempfile.mkdtemp(prefix="magnetar-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def isolated(open_directory: Path, users: tuple[SystemUser, SystemUser]) -> Iterator[Server]:
    """A standalone with one user for each of two tenants, and secrets in its environment and settings."""
    providers = open_directory / "providers"
    providers.mkdir()
    (providers / "vault_of_tests.py").write_text(PROVIDER)
    config = open_directory / "functions_worker.yml"
    mapping = ", ".join(f"{tenant}: {one.name}" for tenant, one in zip(TENANTS, users, strict=True))
    config.write_text(
        f"processRuntimeUsers: {{{mapping}}}\nsecretsProviderClassName: vault_of_tests.Vault\n"
        f"secretsProviderConfig: {{token: {MARKERS['settings']}}}\n"
    )
    config.chmod(0o600)
    server = a_server("standalone", open_directory / "server", "--config", str(config))
    server.environment = {"WORKERS_OWN": MARKERS["environment"], "PYTHONPATH": str(providers)}
    try:
        server.start()
        for tenant in (*TENANTS, "nobodys"):
            make_tenant(server, tenant)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def one(isolated: Server) -> Iterator[Deployed]:
    with Deployed(isolated, "one") as deployed:
        deployed.deploy("obeys")
        yield deployed


@pytest.fixture(scope="session")
def two(isolated: Server) -> Iterator[Deployed]:
    with Deployed(isolated, "two") as deployed:
        deployed.deploy("obeys")
        yield deployed


@pytest.fixture
def run(one: Deployed) -> Run:
    """Runs code in a function of the first tenant."""
    return lambda code: one.run("obeys", code)
