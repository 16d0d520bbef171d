"""``magnetar packages``: code stored under a name and version, for functions, sources and sinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..failure import Failure, Group
from ..rest import Admin, Names, Parts, rest_command, segment
from ..rest import as_fields as _as_fields

_BASE = "/admin/v3/packages"
_EXAMPLE = """\b
magnetar packages upload function://public/default/shout@1 --path shout.py --description "louder"
magnetar functions create --py function://public/default/shout@1 --classname shout.Shout --inputs a"""


@click.group(cls=Group)
def packages() -> None:
    """Store code under names and versions."""


def package_path(name: str, *, has_version: bool = True) -> str:
    """Return the REST path of ``type://tenant/namespace/name@version``; the version defaults to ``latest``.

    Raises:
        Failure: the name is invalid.
    """
    kind, separator, rest = name.partition("://")
    path, _, version = rest.partition("@")
    parts = path.split("/")
    if not separator or len(parts) != 3 or not all(parts):
        raise Failure(
            f"invalid package {name!r}: expected function://tenant/namespace/name@version, sink:// or source://"
        )
    words = [kind, *parts, *([version or "latest"] if has_version else [])]
    return "/".join((_BASE, *map(segment, words)))


def _metadata_options(command: Any) -> Any:
    for option in (
        click.option("-P", "--properties", multiple=True, metavar="KEY=VALUE", help="Property; repeatable."),
        click.option("-c", "--contact", help="Contact for questions."),
        click.option("-d", "--description", required=True, help="Description of the package."),
    ):
        command = option(command)
    return command


def _metadata(description: str, contact: str | None, properties: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, str] = {}
    for one in properties:
        key, separator, value = one.partition("=")
        if not separator or not key:
            raise Failure(f"invalid -P {one!r}: expected key=value")
        found[key] = value
    return {"description": description, "contact": contact, "properties": found}


@rest_command(packages, epilog=_EXAMPLE)
@click.argument("package", metavar="TYPE://T/N/NAME@VERSION")
@click.option("--path", "file", required=True, metavar="FILE", help="File to upload.")
@_metadata_options
def upload(
    rest: Admin, /, package: str, file: str, description: str, contact: str | None, properties: tuple[str, ...]
) -> str:
    """Upload a file as a package version."""
    try:
        content = Path(file).read_bytes()
    except OSError as exc:
        raise Failure(f"--path {file} cannot be read: {exc.strerror}") from exc
    parts: Parts = {
        "metadata": (None, json.dumps(_metadata(description, contact, properties)), "application/json"),
        "file": (Path(file).name, content, "application/octet-stream"),
    }
    rest.send_parts("POST", package_path(package), parts)
    return f"The package '{package}' uploaded from path '{file}' successfully"


@rest_command(packages)
@click.argument("package", metavar="TYPE://T/N/NAME@VERSION")
@click.option("--path", "file", required=True, metavar="FILE", help="Destination file.")
def download(rest: Admin, /, package: str, file: str) -> str:
    """Download the file of a package version."""
    with rest.stream(package_path(package), {}) as pieces, Path(file).open("wb") as target:
        for piece in pieces:
            target.write(piece)
    return f"The package '{package}' downloaded to path '{file}' successfully"


@rest_command(packages, "list")
@click.argument("namespace", metavar="TENANT/NAMESPACE")
@click.option("--type", "kind", required=True, help="function, sink or source.")
def list_packages(rest: Admin, /, namespace: str, kind: str) -> Names:
    """List the packages of a namespace."""
    parts = namespace.split("/")
    if len(parts) != 2:
        raise Failure(f"invalid namespace {namespace!r}: expected tenant/namespace")
    return Names(rest.get("/".join((_BASE, *map(segment, (kind, *parts))))), f"no {kind} packages in {namespace}")


@rest_command(packages)
@click.argument("package", metavar="TYPE://T/N/NAME")
def list_versions(rest: Admin, /, package: str) -> Names:
    """List the versions of a package."""
    return Names(rest.get(package_path(package, has_version=False)), f"no versions of {package}")


@rest_command(packages)
@click.argument("package", metavar="TYPE://T/N/NAME@VERSION")
def get_metadata(rest: Admin, /, package: str) -> Any:
    """Show the metadata of a package version."""
    return _as_fields(rest.get(f"{package_path(package)}/metadata"))


@rest_command(packages)
@click.argument("package", metavar="TYPE://T/N/NAME@VERSION")
@_metadata_options
def update_metadata(
    rest: Admin, /, package: str, description: str, contact: str | None, properties: tuple[str, ...]
) -> str:
    """Replace description, contact and properties of a package version."""
    rest.put(f"{package_path(package)}/metadata", _metadata(description, contact, properties))
    return f"The metadata of the package '{package}' updated successfully"


@rest_command(packages)
@click.argument("package", metavar="TYPE://T/N/NAME@VERSION")
def delete(rest: Admin, /, package: str) -> str:
    """Delete a package version; functions created from it keep their code."""
    rest.delete(package_path(package))
    return f"The package '{package}' deleted successfully"
