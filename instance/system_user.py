"""The system user of an instance's process, if user code is isolated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_KEPT = ("PATH", "LANG", "LANGUAGE", "TZ")
_KEPT_BEGINNINGS = ("LC_", "PYTHON")


class SystemUser(NamedTuple):
    """A user of this machine.

    Attributes:
        name: user name, for messages.
        uid: user id.
        gid: id of the user's own group, the only group of the process.
    """

    name: str
    uid: int
    gid: int


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the public part of an environment: paths, language, time zone and Python settings."""
    return {name: value for name, value in environment.items() if name in _KEPT or name.startswith(_KEPT_BEGINNINGS)}
