"""Checks and file permissions for servers that run instances as other users."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import InvalidConfig
from ...instance.system_user import SystemUser
from ..failure import Failure

UMASK = 0o077
"""Umask of servers whose data directory other users may traverse: new files are private."""


def isolated_users(names: Mapping[str, str] | None) -> list[SystemUser]:
    """Return the system users in a worker's settings, which may be none; if there are any, make new files private.

    Raises:
        Failure: this process cannot switch to other users, or one of them cannot be used.
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
        Failure: a user cannot reach a file.
    """
    if not users:
        return
    from ...runtime.isolation.users import check_reach as check

    try:
        check(users, data_dir)
    except InvalidConfig as error:
        raise Failure(str(error)) from error
