"""The run that a function has been asked for, kept until its end was told: whoever loads the function finishes it.

Who triggers a run is given its id before it is planned. So the request itself is kept, as a key beside the plan's: a
worker that dies, or stops, leaves it there, and the instance that takes its place goes on under the same id, for which
somebody may wait. A run that failed is over, as its end was told; so is one of a function that was changed or stopped
meanwhile, which is a new version of its record.
"""

from __future__ import annotations

import contextlib
import json

from ...errors import BadVersion, MagnetarError
from ...instance.exact.identity import life_of
from ...instance.spec import InstanceSpec
from ...state.client import TableClient
from ...state.naming import table_of
from .retries import patiently

KEY = b"__spark_run__"
ATTEMPTS_MAX = 6
"""Beginnings of one run; what ends a worker each time is not tried for ever, but when somebody triggers it again."""


class AcceptedRun:
    """The key of one function; blocking, for one thread."""

    def __init__(self, client: TableClient, spec: InstanceSpec) -> None:
        """Prepare."""
        metadata = spec.metadata
        self._client = client
        self._table = table_of(metadata)
        self._life = f"{life_of(metadata)} version {metadata.version}"
        self._version = 0

    def find(self) -> str:
        """Return the id of a run that has begun and not ended, empty if there is none to be begun again.

        Raises:
            MagnetarError: the store does not answer.
        """
        run_id, attempts = self._read()
        return run_id if attempts < ATTEMPTS_MAX else ""

    def note(self, run_id: str) -> None:
        """Keep that a run begins.

        Raises:
            MagnetarError: it cannot be stored.
        """
        before, attempts = patiently(self._read)
        made = 1 + (attempts if before == run_id else 0)
        content = {"run": run_id, "life": self._life, "attempts": made}
        data = json.dumps(content, separators=(",", ":")).encode()
        self._version = patiently(lambda: self._client.put(self._table, KEY, data))

    def forget(self) -> None:
        """Keep that it has ended, if nobody else has begun one meanwhile; a store that is away keeps it for later."""
        with contextlib.suppress(BadVersion, MagnetarError):
            self._client.put(self._table, KEY, b"", self._version)

    def _read(self) -> tuple[str, int]:
        [value] = self._client.read(self._table, [KEY])
        if value is None or not value.data:
            return "", 0
        content = json.loads(value.data)
        return (content["run"], content["attempts"]) if content["life"] == self._life else ("", 0)
