"""The flags of ``functions create`` and ``update``, and the names and packages that they give."""

from __future__ import annotations

from typing import Any

from ...config.function_config import FUNCTION_FLAGS
from ..config_flags import config_options
from ..failure import Failure
from .target import DEFAULT_NAMESPACE, DEFAULT_TENANT, split_fqfn

REMOTE_PREFIXES = ("http://", "https://", "file://", "function://", "source://", "sink://")

function_options = config_options(FUNCTION_FLAGS, "--function-config-file", "--functionConfigFile")


def complete_names(config: dict[str, Any], fqfn: str | None, tenant: str | None, namespace: str | None) -> None:
    """Fill in tenant, namespace and name; a missing name is the last part of the class name, as in Pulsar.

    Raises:
        Failure: no name can be found.
    """
    fqfn = fqfn or config.pop("fqfn", None)
    if fqfn:
        config["tenant"], config["namespace"], config["name"] = split_fqfn(str(fqfn))
    config["tenant"] = tenant or config.get("tenant") or DEFAULT_TENANT
    config["namespace"] = namespace or config.get("namespace") or DEFAULT_NAMESPACE
    if not config.get("name"):
        name = str(config.get("className") or "").rpartition(".")[2]
        if not name:
            raise Failure("No Function name specified: give --name, or --classname whose last part becomes the name")
        config["name"] = name


def is_remote(package: str) -> bool:
    """Return whether a package is fetched by the worker instead of sent by us."""
    return package.startswith(REMOTE_PREFIXES)
