"""A standalone that runs the code of each tenant as another system user, and functions that do what they are told."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from magnetar.errors import InvalidConfig
from magnetar.instance.system_user import SystemUser
from magnetar.runtime.isolation.users import check_reach

from tests.support.isolated import TENANTS, USERS, Deployed, Run
from tests.support.servers import Server, running


def user(name: str) -> SystemUser:
    found = pwd.getpwnam(name)
    return SystemUser(name, found.pw_uid, found.pw_gid)


@pytest.fixture(scope="session")
def users() -> tuple[SystemUser, SystemUser]:
    """Two system users; skips where this process cannot become them."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes other users")
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
    """A directory that every user comes to, which those of pytest are not."""
    directory = Path(tempfile.mkdtemp(prefix="magnetar-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def isolated(open_directory: Path, users: tuple[SystemUser, SystemUser]) -> Iterator[Server]:
    """A standalone with a user for each of two tenants, whose environment and files hold what nobody may find."""
    mapping = ",".join(f"{tenant}={one.name}" for tenant, one in zip(TENANTS, users, strict=True))
    os.environ["MAGNETAR_TEST_WORKERS_OWN"] = "marker-in-the-environment"
    try:
        with running("standalone", open_directory / "server", "--process-users", mapping) as server:
            for tenant in (*TENANTS, "nobodys"):
                body = {"allowedClusters": ["standalone"]}
                httpx.put(f"{server.web_url}/admin/v2/tenants/{tenant}", json=body).raise_for_status()
                httpx.put(f"{server.web_url}/admin/v2/namespaces/{tenant}/code", json={}).raise_for_status()
            yield server
    finally:
        del os.environ["MAGNETAR_TEST_WORKERS_OWN"]


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
