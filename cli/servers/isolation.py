"""Start of servers whose instances run as other users: checks, and rights of what they make."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import InvalidConfig
from ...instance.system_user import SystemUser
from ..failure import Failure

UMASK = 0o077
"""What a server makes in a directory that others come through is its own."""


def isolated_users(names: Mapping[str, str] | None) -> list[SystemUser]:
    """Return the system users of a worker's setting, and keep what this process makes from them; empty without it.

    Raises:
        Failure: this process cannot become others, or one of them cannot be used.
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
    """Make sure that users come to what their instances need.

    Raises:
        Failure: one does not.
    """
    if not users:
        return
    from ...runtime.isolation.users import check_reach as check

    try:
        check(users, data_dir)
    except InvalidConfig as error:
        raise Failure(str(error)) from error
