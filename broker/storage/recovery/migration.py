"""The formats of the storage directory, and the migration from earlier formats to the current one.

Design: the catalogue contains the format number and is replaced as a whole with a rename, so that the directory and its
format number change in one step. A directory in an earlier format is first read. Then, before anything is written in
the current format, `migrate`

1. copies each file that will be rewritten to ``before-format-N/``, renaming each copy once it is complete;
2. writes the new files next to the old ones;
3. installs a catalogue with the current format number.

If the process is killed before the third step, the directory still has the earlier format, and the next start repeats
the migration; afterwards, it has the current format. Older versions reject the current format because of its number.
The copies are kept until they are removed manually.

Format 1: journal groups contain only the file id.
Format 2: groups also contain a nonce, and the catalogue contains its key. Journal files of format 1 remain readable
until they are recycled, so only the catalogue is rewritten.
Format 3: the catalogue lists the ledgers that may contain delayed entries, which older versions would deliver
immediately.
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
    """Migrate a directory to the current format; ``head`` becomes the head of the new catalogue.

    Raises:
        DiskFailure: the disk failed. The directory has either format, and the next start completes the migration.
    """
    copies = keep_copies(disk, directory, ("catalogue",))
    write_catalogue(disk, directory, head, catalogue.lines)
    logger.warning(
        "migrated data directory %s from format %d to %d; the replaced files are in %s",
        directory, catalogue.format, FORMAT, copies,
    )  # fmt: skip


def keep_copies(disk: Disk, directory: str, names: tuple[str, ...]) -> str:
    """Copy files to a backup directory durably, overwriting copies of earlier attempts, and return its path."""
    path = f"{directory}/before-format-{FORMAT}"
    with disk_action("back up the old format to", path):
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
