"""The flags for a function's name, config and package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from ...config.function_config import FUNCTION_FLAGS
from ..config_flags import config_options
from ..failure import Failure
from ..rest import segment

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"
function_options = config_options(FUNCTION_FLAGS, "--function-config-file", "--functionConfigFile")


@dataclass(frozen=True)
class Target:
    """A function's full name."""

    tenant: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The function's REST path."""
        return f"/admin/v3/functions/{segment(self.tenant)}/{segment(self.namespace)}/{segment(self.name)}"


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--fqfn``, ``--tenant``, ``--namespace`` and ``--name`` to a command."""
    for option in (
        click.option("--name", help="Name of the function."),
        click.option("--namespace", help="Namespace of the function (default: default)."),
        click.option("--tenant", help="Tenant of the function (default: public)."),
        click.option("--fqfn", metavar="T/N/F", help="Fully qualified name: tenant/namespace/name."),
    ):
        command = option(command)
    return command


def instance_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of `target_options` to a command, and ``--instance-id`` for one instance of the function."""
    return target_options(
        click.option(
            "--instance-id", "--instance", "instance_id", type=int, help="Id of a single instance (default: all)."
        )(command)
    )


def split_fqfn(fqfn: str) -> tuple[str, str, str]:
    """Return the three parts of a fully qualified function name.

    Raises:
        Failure: the name does not have three parts.
    """
    parts = fqfn.split("/")
    if len(parts) != 3 or not all(parts):
        raise Failure(f"invalid --fqfn {fqfn!r}: expected tenant/namespace/name")
    return parts[0], parts[1], parts[2]


def find_target(fqfn: str | None, tenant: str | None, namespace: str | None, name: str | None) -> Target:
    """Return the function specified by the flags.

    Raises:
        Failure: the name is missing, or is specified twice.
    """
    if fqfn is not None:
        if tenant is not None or namespace is not None or name is not None:
            raise Failure("--fqfn cannot be combined with --tenant, --namespace or --name")
        return Target(*split_fqfn(fqfn))
    if not name:
        raise Failure("no function specified: add --name (and --tenant, --namespace) or --fqfn tenant/namespace/name")
    return Target(tenant or DEFAULT_TENANT, namespace or DEFAULT_NAMESPACE, name)


def find_path(instance_id: int | None, **target: str | None) -> str:
    """Return the REST path specified by the flags of `instance_options`; raises the same as `find_target`."""
    path = find_target(**target).path
    return path if instance_id is None else f"{path}/{instance_id}"


def complete_names(config: dict[str, Any], fqfn: str | None, tenant: str | None, namespace: str | None) -> None:
    """Fill in tenant, namespace and name; a missing name is the last part of the class name, as in Pulsar.

    Raises:
        Failure: there is neither a name nor a class name.
    """
    fqfn = fqfn or config.pop("fqfn", None)
    if fqfn:
        config["tenant"], config["namespace"], config["name"] = split_fqfn(str(fqfn))
    config["tenant"] = tenant or config.get("tenant") or DEFAULT_TENANT
    config["namespace"] = namespace or config.get("namespace") or DEFAULT_NAMESPACE
    if not config.get("name"):
        name = str(config.get("className") or "").rpartition(".")[2]
        if not name:
            raise Failure("No Function name specified: add --name, or --classname, whose last part is the default name")
        config["name"] = name
