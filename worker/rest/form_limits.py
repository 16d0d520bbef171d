"""Limits for a worker's concurrent multipart requests: memory for small parts, and uploads to disk.

Both are shared fairly between callers, so that a role with large or slow requests leaves capacity for others.
"""

from __future__ import annotations

from ...errors import RequestRefused
from ...tasks import Room, Shares

FORM_BYTES_MAX = 6 * 1024 * 1024
"""Maximum bytes of one request's parts in memory: the largest message as trigger data plus a config."""
MEMORY_BYTES_MAX = 96 * 1024 * 1024
"""Maximum bytes of all requests' parts in memory."""
MEMORY_BYTES_PER_CALLER = 24 * 1024 * 1024
UPLOADS_MAX = 128
"""Maximum concurrent requests whose package is being uploaded or checked."""
UPLOADS_PER_CALLER = 32


class FormLimits:
    """Limits of one worker."""

    def __init__(self) -> None:
        self.memory = Shares(MEMORY_BYTES_MAX, MEMORY_BYTES_PER_CALLER)
        self.uploads = Shares(UPLOADS_MAX, UPLOADS_PER_CALLER)


class FormAccount:
    """Resources of one request until it is answered."""

    def __init__(self, limits: FormLimits, caller: str) -> None:
        self._limits = limits
        self._caller = caller
        self._bytes = 0
        self._uploads = 0

    def keep(self, size: int) -> None:
        """Reserve more memory.

        Raises:
            RequestRefused: 400, the parts of this request are too large; 429, those of the caller's requests; 503,
                those of all requests.
        """
        if self._bytes + size > FORM_BYTES_MAX:
            raise RequestRefused(400, f"the parts of the request other than the package exceed {FORM_BYTES_MAX} bytes")
        room = self._limits.memory.take(self._caller, size)
        if room is Room.SHARE_USED:
            reason = f"requests of {self._caller} hold {MEMORY_BYTES_PER_CALLER // 2**20} MiB of forms"
            raise RequestRefused(429, f"{reason}: retry when some have been answered")
        if room is Room.POOL_USED:
            raise RequestRefused(503, f"requests hold {MEMORY_BYTES_MAX // 2**20} MiB of forms: retry shortly")
        self._bytes += size

    def begin_upload(self) -> None:
        """Reserve a slot for an upload.

        Raises:
            RequestRefused: 429, the caller has too many uploads in progress; 503, all callers together have too many.
        """
        room = self._limits.uploads.take(self._caller)
        if room is Room.SHARE_USED:
            reason = f"{self._caller} has {UPLOADS_PER_CALLER} uploads in progress"
            raise RequestRefused(429, f"{reason}: retry when some have finished")
        if room is Room.POOL_USED:
            raise RequestRefused(503, f"{UPLOADS_MAX} uploads are in progress: retry shortly")
        self._uploads += 1

    def close(self) -> None:
        """Release all resources."""
        self._limits.memory.give_back(self._caller, self._bytes)
        self._limits.uploads.give_back(self._caller, self._uploads)
        self._bytes = self._uploads = 0
