"""System users that run the tenants' code, looked up and checked when a worker starts.

Users of different tenants must not share a group: access to a tenant's files, such as its packages, is granted to the
group.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...errors import InvalidConfig
from ...instance.system_user import SystemUser

SETTING = "processRuntimeUsers"
ANY_TENANT = "*"
"""Key that stands for all other tenants."""
_NEEDED = {0: "CHOWN", 1: "DAC_OVERRIDE", 3: "FOWNER", 5: "KILL", 6: "SETGID", 7: "SETUID"}
"""Capabilities of root that some containers drop, by bit."""
_PACKAGE = Path(__file__).parents[2]


class ProcessUsers:
    """The system users of all tenants."""

    def __init__(self, users: Mapping[str, SystemUser]) -> None:
        """Map tenants to users, with `ANY_TENANT` for all others."""
        self._users = dict(users)

    @property
    def all(self) -> list[SystemUser]:
        """Each user once, by name."""
        return sorted(set(self._users.values()))

    def of(self, tenant: str) -> SystemUser:
        """Return the user of a tenant.

        Raises:
            InvalidConfig: the tenant has no user.
        """
        user = self._users.get(tenant) or self._users.get(ANY_TENANT)
        if user is None:
            raise InvalidConfig(
                f"no system user is configured for tenant {tenant}: add one to the worker's {SETTING}, or"
                f" {ANY_TENANT!r} for all other tenants"
            )
        return user


def find_users(names: Mapping[str, str]) -> ProcessUsers:
    """Return the users of a worker's setting.

    Args:
        names: user names by tenant, as in `WorkerConfig.process_users`.

    Raises:
        InvalidConfig: this process cannot switch users, or a user cannot be used; the message contains the user and the
            remedy.
    """
    _check_rights()
    users = {tenant: _user(tenant, name) for tenant, name in names.items()}
    by_group: dict[int, SystemUser] = {}
    for user in users.values():
        other = by_group.setdefault(user.gid, user)
        if other.uid != user.uid:
            raise InvalidConfig(
                f"{SETTING}: users {other.name} and {user.name} share group {user.gid}, so each could read the"
                " other's packages: assign a separate group to each (useradd --user-group)"
            )
    return ProcessUsers(users)


def _check_rights() -> None:
    if os.geteuid() != 0:
        raise InvalidConfig(
            f"{SETTING} requires a worker that runs as root, as only root can switch users; this one runs as user"
            f" {os.geteuid()}: start it as root, or remove the setting"
        )
    held = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
    missing = [name for bit, name in _NEEDED.items() if not held >> bit & 1]
    if missing:
        raise InvalidConfig(
            f"{SETTING} requires the root capabilities {', '.join(missing)}, which this container lacks: add them"
            " (docker run --cap-add), or remove the setting"
        )


def _user(tenant: str, name: str) -> SystemUser:
    where = f"{SETTING}: {'all other tenants' if tenant == ANY_TENANT else f'tenant {tenant}'}"
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise InvalidConfig(
            f"{where}: system user {name!r} does not exist on this machine: create it (useradd --system --user-group"
            f" {name}) or correct the name"
        ) from None
    if found.pw_uid == 0 or found.pw_gid == 0:
        raise InvalidConfig(
            f"{where}: user {name} has user or group id 0, which provides no isolation: use another user"
        )
    return SystemUser(name, found.pw_uid, found.pw_gid)


def check_reach(users: Iterable[SystemUser], data_dir: Path) -> None:
    """Check that users can reach the Python environment and the worker's data directory.

    Raises:
        InvalidConfig: a directory on the path is closed to a user; the message contains the directory and the remedy.
    """
    for user in users:
        for wanted in (Path(sys.prefix), Path(sys.base_prefix), _PACKAGE):
            check_way(user, wanted, "install Magnetar and its Python where all users can read them")
        check_way(user, data_dir, "set --data-dir to a path that all users can reach; its contents remain protected")


def check_way(user: SystemUser, wanted: Path, remedy: str) -> None:
    """Check that a user can reach a directory.

    Raises:
        InvalidConfig: a directory on the path is closed; the message contains the directory and the remedy.
    """
    wanted = wanted.resolve()
    for directory in (*reversed(wanted.parents), wanted):
        status = directory.stat()
        if status.st_uid == user.uid:
            bit = stat.S_IXUSR
        elif status.st_gid == user.gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not status.st_mode & bit:
            raise InvalidConfig(
                f"{SETTING}: user {user.name} cannot reach {wanted}: {directory} has mode"
                f" {stat.S_IMODE(status.st_mode):04o}; {remedy} (chmod o+x)"
            )
