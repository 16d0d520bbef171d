"""Start of servers whose instances run as other users: checks, and permissions of created files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import InvalidConfig
from ...instance.system_user import SystemUser
from ..failure import Failure

UMASK = 0o077
"""Files that a server creates in a directory that others may traverse are private."""


def isolated_users(names: Mapping[str, str] | None) -> list[SystemUser]:
    """Return the system users in a worker's settings, and make this process's files private; empty without users.

    Raises:
        Failure: this process cannot switch to other users, or one of them is not usable.
    """
    if not names:
        return []
    from ...runtime.isolation.users import find_users

    try:
        users = find_users(names).all
    except InvalidConfig as error:
        raise Failure(str(error)) from error
    os.umask(UMASK)
    return users


def check_reach(users: Sequence[SystemUser], data_dir: Path) -> None:
    """Check that users can reach the files that their instances need.

    Raises:
        Failure: a user cannot.
    """
    if not users:
        return
    from ...runtime.isolation.users import check_reach as check

    try:
        check(users, data_dir)
    except InvalidConfig as error:
        raise Failure(str(error)) from error
