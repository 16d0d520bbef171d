"""What is refused by name under isolation: at the start, at the creation of functions, and of those from before it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from magnetar.errors import InvalidConfig
from magnetar.instance.system_user import SystemUser
from magnetar.runtime.isolation.users import check_reach, find_users

from tests.support.isolated import Deployed, make_tenant
from tests.support.servers import COMMAND, ROOT, Server
from tests.support.servers import server as a_server
from tests.support.waiting import wait_for

WHY_NO_THREAD = "runtimeEnv thread is not allowed with processRuntimeUsers"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")


def start(*flags: str, **options: Any) -> str:
    """The last line that a worker says which does not start."""
    ended = subprocess.run(
        [*COMMAND, "worker", *flags], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **options
    )
    assert ended.returncode == 1
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return str(lines[0])


@pytest.mark.slow
@root_only
@pytest.mark.parametrize(
    ("users", "said"),
    [
        (
            "one=no-such-user",
            "tenant one: system user 'no-such-user' does not exist on this machine: create it (useradd",
        ),
        ("*=root", "all other tenants: user root has user or group id 0, which provides no isolation"),
        ("one=daemon,one=games", "invalid --process-users 'one=daemon,one=games': a tenant is listed twice"),
        ("one", "expected system users by tenant"),
        ("one=sync,two=nobody", "users sync and nobody share group 65534"),
    ],
)
def test_worker_does_not_start_with_users_that_protect_nothing(tmp_path: Path, users: str, said: str) -> None:
    assert said in start("--data-dir", str(tmp_path / "data"), "--process-users", users)


@pytest.mark.slow
def test_worker_that_is_not_root_does_not_start_with_users(
    open_directory: Path, users: tuple[SystemUser, SystemUser]
) -> None:
    said = start(
        "--data-dir", "/nonexistent", "--process-users", "one=games",
        user=users[0].uid, group=users[0].gid, extra_groups=(),
    )  # fmt: skip
    assert "processRuntimeUsers requires a worker that runs as root" in said
    assert f"this one runs as user {users[0].uid}" in said


def test_data_directory_that_a_user_cannot_come_to_is_named(
    tmp_path: Path, users: tuple[SystemUser, SystemUser]
) -> None:
    closed = tmp_path / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(InvalidConfig, match=rf"user {users[0].name} cannot reach .*: .* has mode 0700; set --data-dir"):
        check_reach([users[0]], closed / "data")


@root_only
def test_tenant_without_a_user_has_none_unless_there_is_one_for_all() -> None:
    with pytest.raises(
        InvalidConfig, match="no system user is configured for tenant other: add one to the worker's process"
    ):
        find_users({"one": "daemon"}).of("other")
    assert find_users({"one": "daemon", "*": "games"}).of("other").name == "games"
    assert find_users({"one": "daemon", "*": "games"}).of("one").name == "daemon"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tenant", "config", "said"),
    [
        ("nobodys", {}, "no system user is configured for tenant nobodys: add one to the worker's processRuntimeUsers"),
        ("one", {"runtimeEnv": "thread"}, "runtimeEnv thread is not allowed with processRuntimeUsers"),
        (
            "one",
            {"runtimeEnv": "spark", "processingGuarantees": None},
            "runtimeEnv spark is not allowed with processRuntimeUsers",
        ),
        ("one", {"secrets": {"a": {"env": "HOME"}}}, "secrets.a is in the worker's environment"),
    ],
)
def test_function_that_cannot_be_isolated_is_not_created(
    isolated: Server, tenant: str, config: dict[str, Any], said: str
) -> None:
    with Deployed(isolated, tenant) as deployed:
        answer = deployed.create("refused", **config)
        assert answer.status_code == 400, answer.text
        assert said in answer.json()["reason"]
        assert deployed.http.get("refused").status_code == 404


@pytest.mark.slow
def test_function_cannot_be_changed_into_one_that_cannot_be_isolated(one: Deployed) -> None:
    answer = one.update("obeys", runtimeEnv="thread")
    assert answer.status_code == 400
    assert WHY_NO_THREAD in answer.json()["reason"]


@pytest.mark.slow
def test_restart_with_isolation_other_users_and_without_it(
    open_directory: Path, users: tuple[SystemUser, SystemUser]
) -> None:
    server = a_server("standalone", open_directory / "restarts")
    try:
        server.start()
        make_tenant(server, "one")
        with Deployed(server, "one") as one:
            one.deploy("stays")
            one.deploy("thread", runtimeEnv="thread")
            one.run("stays", "print('said before')")
            for flags, uid in ((("one=daemon",), users[0].uid), (("one=games",), users[1].uid), ((), 0)):
                server.stop()
                server.start([word for users in flags for word in ("--process-users", users)])
                wait_for(lambda: one.status("stays")["running"], "function that runs again", 30)
                assert one.run("stays", "import os; print('said by', os.getuid()); result = os.getuid()") == uid
                logs = one.http.get("stays/0/logs").text
                assert "said before" in logs
                assert f"said by {uid}" in logs
                if uid:
                    wait_for(
                        lambda: WHY_NO_THREAD in one.status("thread")["error"], "reason of the thread function", 30
                    )
            wait_for(lambda: one.status("thread")["running"], "thread function that runs again", 30)
    finally:
        server.stop()
