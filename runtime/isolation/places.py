"""Directories on a worker's disk under isolation: what a tenant's instances may read and write.

    <data>/users/<uid>/packages/<sha256>/       packages, owned by root; only the user's group can enter <uid>
    <data>/users/<uid>/requirements/<digest>/   requirements installed for them, owned by root
    <data>/logs/functions/<tenant>/…/<name>/    logs of a function, owned by its user
    <data>/run/<worker>/<instance>/             socket and temporary files of a running process, owned by its user

Packages are shared by content: functions of two tenants may use the same file. Each user has a tree of hard links to
the files of the store, whose own directory is closed: contents are stored once, and users cannot infer from names what
others have.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import stat
import uuid
from pathlib import Path

from ...instance.loading.requirements import Installer
from ...instance.system_user import SystemUser
from ...instance.trees import PASSAGE, Removal, hand_over, make_passage, make_private
from .users import ProcessUsers, check_way

USERS_FOLDER = "users"
_PACKAGES, _REQUIREMENTS, _TRASH = "packages", "requirements", ".trash"
_OPEN = ("run", "logs", USERS_FOLDER)
"""Entries of the worker's directory that other users may traverse."""
_OF_GROUP = 0o750
_UNLINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
_CACHE = "__pycache__"


class Isolation:
    """The users of a worker's tenants and their directories; methods with effects block.

    Attributes:
        users: users of the tenants.
        discard: moves a directory out of the way immediately, and deletes its contents later.
    """

    def __init__(self, users: ProcessUsers, data_dir: Path, store: Path) -> None:
        """Create an isolation; `prepare` sets up the directories.

        Args:
            users: users of the tenants.
            data_dir: data directory of the worker.
            store: directory where its packages are extracted.
        """
        self.users = users
        self._data_dir = data_dir
        self._store = store
        self._removal = Removal(data_dir / USERS_FOLDER / _TRASH)
        self.discard = self._removal.discard

    def prepare(self) -> None:
        """Close the worker's directory except for the paths to tenants' files, and remove the users' packages."""
        self._data_dir.chmod(PASSAGE)
        close_entries(self._data_dir, _OPEN)
        make_passage(self._data_dir / USERS_FOLDER, self._data_dir)
        self._removal.remove_left()
        for found in (self._data_dir / USERS_FOLDER).iterdir():
            if found.name != _TRASH:
                self.discard(found / _PACKAGES)

    def _area(self, user: SystemUser, folder: str) -> Path:
        area = self._data_dir / USERS_FOLDER / str(user.uid)
        area.mkdir(mode=_OF_GROUP, exist_ok=True)
        os.chown(area, 0, user.gid, follow_symlinks=False)
        area.chmod(_OF_GROUP)
        (area / folder).mkdir(mode=0o755, exist_ok=True)
        (area / folder).chmod(0o755)
        return area / folder

    def package_for(self, user: SystemUser, package: Path) -> Path:
        """Return the path of a package for a user, creating it if needed.

        Args:
            user: user of the package's tenant.
            package: path in the store, a file or a directory.
        """
        inside = package.relative_to(self._store)
        source, target = self._store / inside.parts[0], self._area(user, _PACKAGES) / inside.parts[0]
        if package.is_file():  # the same content may have several names, each a separate file
            target.mkdir(mode=0o755, exist_ok=True)
            target.chmod(0o755)
            with contextlib.suppress(FileExistsError):
                _link(package, target / package.name)
        elif not target.is_dir():
            fresh = target.with_name(f".{uuid.uuid4().hex}")
            try:
                _link_tree(source, fresh)
                with contextlib.suppress(OSError):  # another thread was faster, with the same content
                    fresh.rename(target)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
        return target.joinpath(*inside.parts[1:])

    def forget_package(self, package_id: str) -> None:
        """Remove a package that the store has removed from all users' directories."""
        for found in (self._data_dir / USERS_FOLDER).glob(f"*/{_PACKAGES}/{package_id}*"):
            shutil.rmtree(found, ignore_errors=True)

    def installer_for(self, user: SystemUser) -> Installer:
        """Return an installer that installs requirements as a user, for that user only; does not block."""
        directory = self._data_dir / USERS_FOLDER / str(user.uid) / _REQUIREMENTS
        return Installer(directory, unused_s=math.inf, user=user)

    def installers(self) -> list[Installer]:
        """Return the installers for all users."""
        return [self.installer_for(user) for user in self.users.all]

    def open_logs(self, user: SystemUser, directory: Path) -> None:
        """Make a user the owner of its function's log directory."""
        make_passage(directory.parent, self._data_dir)
        hand_over(directory, user, self.discard)

    def open_home(self, user: SystemUser, home: Path) -> None:
        """Create the directory for a process that is about to start, replacing that of an earlier one."""
        self.discard(home)
        make_private(home, user)

    def open_run(self, directory: Path) -> None:
        """Let other users traverse the parent of instance directories, and remove remains of earlier processes.

        Raises:
            InvalidConfig: a user cannot reach the directory.
        """
        if directory.is_relative_to(self._data_dir):
            make_passage(directory, self._data_dir)
        directory.chmod(PASSAGE)
        for user in self.users.all:
            check_way(user, directory, "set TMPDIR to a directory that all users can reach")
        for found in directory.iterdir():
            if found.lstat().st_uid != os.geteuid():
                self.discard(found)


def close_entries(directory: Path, but: tuple[str, ...]) -> None:
    """Remove other users' permissions on a directory's entries, except for some names."""
    for found in directory.iterdir():
        status = found.lstat()
        if found.name not in but and not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o077:
            found.chmod(stat.S_IMODE(status.st_mode) & ~0o077)


def _link_tree(source: Path, target: Path) -> None:
    """Create a directory tree with hard links to the files of another, except compiled code added there."""
    target.mkdir(mode=0o755)
    target.chmod(0o755)
    for found in os.scandir(source):
        if found.is_dir(follow_symlinks=False):
            if found.name != _CACHE:
                _link_tree(Path(found.path), target / found.name)
        elif found.is_file(follow_symlinks=False):
            _link(Path(found.path), target / found.name)


def _link(source: Path, target: Path) -> None:
    if source.stat().st_mode & 0o444 != 0o444:
        source.chmod(0o644)
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _UNLINKABLE:
            raise
        shutil.copyfile(source, target)
        target.chmod(0o644)
