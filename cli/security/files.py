"""Files with secrets: readable by their owner only, and never overwritten."""

from __future__ import annotations

import os
from pathlib import Path

from ..failure import Failure


def write_new(path: Path, content: bytes, *, is_secret: bool) -> None:
    """Create a file.

    Args:
        path: path of the file; its directory must exist.
        content: content of the file.
        is_secret: whether only the owner may read it.

    Raises:
        Failure: the file already exists, or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags, 0o600 if is_secret else 0o644), "wb") as file:
            file.write(content)
    except FileExistsError as error:
        raise Failure(f"{path} already exists, and overwritten keys cannot be recovered: use another name") from error
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}") from error
