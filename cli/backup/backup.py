"""``magnetar backup`` and ``magnetar restore``."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path

import click

from ... import __version__
from ..failure import Failure
from ..servers.data_directory import METADATA_FILE, STORAGE_FOLDER, DataDirectory

STATE_FOLDER = "state"


@click.command()
@click.argument("directory", metavar="BACKUP")
@click.option(
    "--data-dir", default="data", show_default=True, metavar="DIR", help="Data directory of the broker or standalone."
)
@click.option(
    "--state-dir",
    metavar="DIR",
    help="Data directory of the state store (default: `state` in --data-dir, if it exists).",
)
def backup(directory: str, data_dir: str, state_dir: str | None) -> None:
    """Back up the broker and the state store to a new directory, whether or not they are running."""
    from ...state.database import FILE
    from .databases import is_locked
    from .files import only_for_owner, write_manifest
    from .taking import Backup

    data, target = Path(data_dir), Path(directory)
    if not (data / STORAGE_FOLDER / "catalogue").exists():
        raise Failure(f"--data-dir {data} is not a broker's data directory: {STORAGE_FOLDER}/catalogue is missing")
    metadata = data / METADATA_FILE
    if not metadata.exists() or (DataDirectory.is_in_use(data) and not is_locked(metadata)):
        raise Failure(
            f"the broker of --data-dir {data} stores its metadata elsewhere, so a consistent copy is not possible: stop"
            " the broker and copy both"
        )
    state = Path(state_dir) if state_dir else data / STATE_FOLDER
    has_state = (state / FILE).exists()
    if state_dir and not has_state:
        raise Failure(f"--state-dir {state_dir} has no {FILE}")
    began_s = time.time()
    taken = Backup(data, state if has_state else None, target)
    try:
        with only_for_owner():
            _take_empty(target, "a backup requires")
            taken.take()
            write_manifest(target, {"version": __version__, "beganMs": int(began_s * 1000), "state": has_state})
    except (OSError, sqlite3.Error) as exc:
        name = getattr(exc, "filename", None) or target
        raise Failure(f"backup failed: {name}: {getattr(exc, 'strerror', None) or exc}") from exc
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    click.echo(f"{target}: {size} bytes in {time.time() - began_s:.1f} s, attempt {taken.attempts}")


@click.command()
@click.argument("directory", metavar="BACKUP")
@click.option("--data-dir", default="data", show_default=True, metavar="DIR", help="Empty or new data directory.")
def restore(directory: str, data_dir: str) -> None:
    """Verify a backup and restore it to a data directory, for standalone or a broker with state store (in `state`)."""
    from .files import checked_manifest, only_for_owner, sync_tree, sync_tree_names

    source, target = Path(directory), Path(data_dir)
    manifest = checked_manifest(source)
    unfinished = target.absolute().with_name(f"{target.absolute().name}.restoring-{os.getpid()}")
    try:
        with only_for_owner():
            _take_empty(target, "restoring a backup requires")
            for name in manifest["files"]:
                (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, unfinished / name)
        sync_tree(unfinished)
        unfinished.rename(target)  # replaces the empty directory atomically
        sync_tree_names(target.absolute().parent)
    except OSError as exc:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise Failure(f"restore failed: {exc.filename or target}: {exc.strerror}") from exc
    click.echo(f"{target}: {len(manifest['files'])} files")


def _take_empty(directory: Path, purpose: str) -> None:
    """Create a directory readable only by its owner; reject an existing one that is not empty."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        held = next(iter(sorted(directory.iterdir())), None)
        if held is None:
            directory.chmod(0o700)  # also if it already existed
    except OSError as exc:
        raise Failure(f"{directory} cannot be used: {exc.strerror}") from exc
    if held is not None:
        raise Failure(f"{directory} contains {held.name}: {purpose} an empty directory")
