"""The formats of a storage data directory, and the migration of earlier formats to the current one.

Design: the catalogue holds the format number and is replaced as a whole with a rename, so directory and number change
in one step. A directory of an earlier format is read by code that knows it; then, before anything is written in the
current format, `migrate`

1. copies each file that will be rewritten to ``before-format-N/``; a copy gets its final name once it is complete;
2. writes the new files beside the old ones;
3. installs the catalogue with the current number.

A kill before the third step leaves a directory of the earlier format, and the next start repeats all of it; a kill
after it leaves one of the current format. Earlier software rejects the current format by its number. The copies stay
until they are removed by hand.

Format 1: journal groups carry only the file's id.
Format 2: groups carry a nonce too, and the catalogue holds its key. Journal files of format 1 are read as they are
until they are recycled, so only the catalogue is rewritten.
Format 3: the catalogue names the ledgers that may hold delayed entries, which earlier software would deliver at once.
"""

from __future__ import annotations

import logging
from contextlib import closing

from ..catalogue import FORMAT, Catalogue, Head, write_catalogue
from ..disk.disk import Disk
from ..disk.failures import disk_action

_PIECE_BYTES = 4 * 1024 * 1024
logger = logging.getLogger(__name__)


def migrate(disk: Disk, directory: str, catalogue: Catalogue, head: Head) -> None:
    """Migrate a directory to the current format; ``head`` is the head of the new catalogue.

    Raises:
        DiskFailure: the disk failed; the directory has one format or the other, and the next start continues.
    """
    copies = keep_copies(disk, directory, ("catalogue",))
    write_catalogue(disk, directory, head, catalogue.lines)
    logger.warning(
        "%s had format %d and has format %d now; what was rewritten is kept in %s", directory, catalogue.format, FORMAT,
        copies,
    )  # fmt: skip


def keep_copies(disk: Disk, directory: str, names: tuple[str, ...]) -> str:
    """Copy files to a backup directory, durably, and return its path; copies of earlier attempts are overwritten."""
    path = f"{directory}/before-format-{FORMAT}"
    with disk_action("keep a copy before the upgrade in", path):
        disk.make_directory(path)
        there = disk.list(path)
        for name in names:
            if f"{name}.new" in there:
                disk.remove(f"{path}/{name}.new")
            _copy(disk, f"{directory}/{name}", f"{path}/{name}.new")
            disk.rename(f"{path}/{name}.new", f"{path}/{name}")
        disk.sync_directory(path)
    return path


def _copy(disk: Disk, old: str, new: str) -> None:
    with closing(disk.open(old)) as source, closing(disk.open(new, create=True)) as target:
        for offset in range(0, source.size(), _PIECE_BYTES):
            target.write(offset, [source.read(offset, _PIECE_BYTES)])
        target.sync()
