"""Pulsar keys without effect in a server's file: counted, logged if changed, or rejected if ignoring one is harmful."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from ..failure import nearest
from .promises import broken_promise
from .pulsar_keys import PREFIXES, as_text, is_same, pulsar_keys, reason_of

_log = logging.getLogger(__name__)
_SECRET = re.compile(
    r"^(basicAuthConf|properties)$|AuthenticationParameters$|Params$|password|secret|credential|private_?key|access_?key|token",
    re.IGNORECASE,
)
"""Names of keys whose values are not shown in errors and logs."""


class UnknownKey(Exception):
    """The key exists neither here nor in Pulsar."""


def shown(name: str, value: Any) -> str:
    """Format a value for errors, hiding possible secrets."""
    return "(not shown)" if _SECRET.search(name) else repr(value)


class WithoutEffect:
    """The keys without effect in a file."""

    def __init__(self, known: Sequence[str], pulsar: Sequence[str]) -> None:
        """Create an empty collection.

        Args:
            known: names of the keys with an effect, as suggestions for mistyped keys.
            pulsar: the applicable tables of Pulsar's keys, ``broker`` or ``worker``.
        """
        self._known = known
        self._pulsar = pulsar
        self._lines: list[str] = []
        self._defaults = 0

    def take(self, name: str, value: Any) -> None:
        """Add a key without effect.

        Raises:
            UnknownKey: the key does not exist in Pulsar.
            ValueError: the value requests a missing feature; the message contains the remedy.
        """
        for file in self._pulsar:
            if self._take_from(file, name, value):
                return
        known = [*self._known, *(other for file in self._pulsar for other in pulsar_keys(file))]
        raise UnknownKey(f"unknown key {name}{nearest(name, known)}; docs/cli.md lists the known keys")

    def _take_from(self, file: str, name: str, value: Any) -> bool:
        """Add a key of one of Pulsar's files; return False if the file does not have the key."""
        table = pulsar_keys(file)
        if isinstance(value, dict) and any(other.startswith(f"{name}.") for other in table):
            for part, one in value.items():
                if as_text(one) and not self._take_from(file, f"{name}.{part}", one):
                    self._note(f"{name}.{part}", one, file)
            return True
        defaults = table.get(name)
        if defaults is None and not name.startswith(PREFIXES):
            return False
        if any(is_same(as_text(value), one) for one in defaults or ()):
            self._defaults += 1
        else:
            self._note(name, value, file)
        return True

    def _note(self, name: str, value: Any, file: str) -> None:
        refusal = broken_promise(name, as_text(value))
        if refusal is not None:
            raise ValueError(refusal)
        setting = name if _SECRET.search(name) else f"{name}={as_text(value)}"
        self._lines.append(f"{setting} has no effect: {reason_of(name, file)}")

    def log(self, path: str) -> None:
        """Log a line for each changed key, and one with the number of other keys."""
        for line in self._lines:
            _log.warning("--config %s: %s", path, line)
        if self._defaults:
            _log.info(
                "--config %s: ignored %d keys without effect that have Pulsar's default value", path, self._defaults
            )
