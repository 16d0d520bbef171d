"""The run request of a function, stored until the end of the run was reported: whoever loads the function finishes it.

Who triggers a run is given its id before it is planned. So the request itself is kept, as a key beside the plan's: a
worker that dies, or stops, leaves it there, and the instance that takes its place goes on under the same id, for which
somebody may wait. A run that failed is over, as its end was told; so is one of a function that was changed or stopped
meanwhile, which is a new version of its record.
"""

from __future__ import annotations

import contextlib
import json

from ...errors import BadVersion, MagnetarError
from ...instance.identity import incarnation_of, table_of
from ...instance.spec import InstanceSpec
from ...state.client import TableClient
from .retries import with_retries

KEY = b"__spark_run__"
ATTEMPTS_MAX = 6
"""Starts of one run: one that ends its worker each time is not tried again until somebody triggers it anew."""


class RunRequest:
    """The run request of one function, a key of its state table; blocking, for one thread."""

    def __init__(self, client: TableClient, spec: InstanceSpec) -> None:
        """Prepare."""
        metadata = spec.metadata
        self._client = client
        self._table = table_of(metadata)
        self._incarnation = f"{incarnation_of(metadata)} version {metadata.version}"
        self._version = 0

    def find(self) -> str:
        """Return the id of a run that has begun and not ended, empty if there is none to be begun again.

        Raises:
            MagnetarError: the store does not answer.
        """
        run_id, attempts = self._read()
        return run_id if attempts < ATTEMPTS_MAX else ""

    def note(self, run_id: str) -> None:
        """Store that a run begins.

        Raises:
            MagnetarError: it cannot be stored.
        """
        before, attempts = with_retries(self._read)
        made = 1 + (attempts if before == run_id else 0)
        content = {"run": run_id, "life": self._incarnation, "attempts": made}
        data = json.dumps(content, separators=(",", ":")).encode()
        self._version = with_retries(lambda: self._client.put(self._table, KEY, data))

    def forget(self) -> None:
        """Store that it has ended, if nobody else has begun one meanwhile; does nothing where the store is away."""
        with contextlib.suppress(BadVersion, MagnetarError):
            self._client.put(self._table, KEY, b"", self._version)

    def _read(self) -> tuple[str, int]:
        [value] = self._client.read(self._table, [KEY])
        if value is None or not value.data:
            return "", 0
        content = json.loads(value.data)
        return (content["run"], content["attempts"]) if content["life"] == self._incarnation else ("", 0)
