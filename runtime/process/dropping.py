"""Permanent switch of a forked process to its tenant's user, before any user code runs in it.

Design: the permissions of a process depend on its user, groups and capabilities, but it also inherits files,
environment and memory. The user change cannot be undone: root's saved ids are replaced, all capabilities are dropped,
and `no_new_privs` disables set-user-id programs. Files are closed and the environment is replaced. Memory cannot be
cleaned afterwards, so the zygote, from which it is copied, never contains data of a single instance; such data is read
from a descriptor that is opened in the fork (`open_of`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from collections.abc import Iterable
from pathlib import Path

from ...instance.system_user import SystemUser, clean_environment
from .forked import FIRST_FILE, LIBC, die_with

UMASK = 0o077
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219}
"""System call numbers."""


def open_of(process_id: int, descriptor: int, flags: int) -> int:
    """Reopen a file descriptor of another process.

    Raises:
        OSError: the descriptor does not exist, or the process may not be accessed.
    """
    return os.open(f"/proc/{process_id}/fd/{descriptor}", flags | os.O_CLOEXEC)


def read_all(descriptor: int) -> bytes:
    """Return a file's content and close it."""
    with open(descriptor, "rb") as file:
        return file.read()


def close_all_but(kept: Iterable[int]) -> None:
    """Close all descriptors above the standard ones, except some."""
    held = set(kept)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= FIRST_FILE and number not in held:
            with contextlib.suppress(OSError):  # the listing's own descriptor is already closed
                os.close(number)


def become(user: SystemUser, home: str, parent: int) -> None:
    """Switch to a user permanently.

    Args:
        user: target user.
        home: the user's directory for this process, used as working directory and for temporary files.
        parent: process whose death also kills this one.

    Raises:
        OSError: the kernel rejected a system call.
        PermissionError: the process would retain privileges.
    """
    kept = clean_environment(os.environ)
    os.environ.clear()
    os.environ.update({**kept, "HOME": home, "TMPDIR": home, "USER": user.name, "LOGNAME": user.name})
    os.umask(UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        LIBC.syscall(number, _JOIN_SESSION_KEYRING, None)  # drop access to root's keys
    if LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise PermissionError("the kernel does not support no_new_privs")
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    # Hide this process even from other processes of the same user, although it can undo this itself.
    LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    die_with(parent)  # the user change has reset it
    os.chdir(home)
    _check(user)


def _check(user: SystemUser) -> None:
    held = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(("CapEff", "CapPrm"))
    ]
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3 or os.getgroups():
        raise PermissionError(f"the process still has user or group ids other than those of {user.name}")
    if any(int(line.split()[1], 16) for line in held):
        raise PermissionError(f"{user.name} retained root capabilities: {', '.join(held)}")
