"""The target connector of a command, and its config from a file and flags."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from ...config.connector_config import BUILT_IN, SINK_FIELDS_BY_NAME, SOURCE_FIELDS_BY_NAME
from ..config_flags import Flags, build_config, config_options, read_config_file
from ..failure import Failure, nearest
from ..functions.functions import package_part
from ..functions.target import DEFAULT_NAMESPACE, DEFAULT_TENANT
from ..rest import segment


class Kind:
    """Sources or sinks, for commands.

    Attributes:
        name: ``source`` or ``sink``.
        base: REST path of all of them.
        options: adds the config flags to a command.
    """

    def __init__(self, name: str, flags: Flags) -> None:
        self.name = name
        self.base = f"/admin/v3/{name}s"
        self.options = config_options(flags, f"--{name}-config-file", f"--{name}ConfigFile")
        self._flags = flags
        self._fields = SINK_FIELDS_BY_NAME if name == "sink" else SOURCE_FIELDS_BY_NAME

    def path(self, tenant: str | None, namespace: str | None, name: str | None) -> str:
        """Return a connector's REST path; raises Failure if the name is missing."""
        if not name:
            raise Failure(f"no {self.name} specified: add --name (and --tenant, --namespace)")
        parts = (tenant or DEFAULT_TENANT, namespace or DEFAULT_NAMESPACE, name)
        for what, part in zip(("tenant", "namespace", "name"), parts, strict=True):
            if not isinstance(part, str):
                raise Failure(f"{what} must be a string, not {part!r}: quote it")
            if "/" in part:
                raise Failure(
                    f"{what} {part!r} contains a slash: use --tenant and --namespace for the other parts of the name"
                )
        return "/".join((self.base, *map(segment, parts)))

    def instance_path(self, instance_id: int | None, **target: str | None) -> str:
        """Return the REST path of a connector, or of one of its instances."""
        path = self.path(**target)
        return path if instance_id is None else f"{path}/{instance_id}"

    def names(self, command: Callable[..., Any]) -> Callable[..., Any]:
        """Add ``--tenant``, ``--namespace`` and ``--name`` to a command."""
        for option in (
            click.option("--name", help=f"Name of the {self.name}."),
            click.option("--namespace", help=f"Namespace of the {self.name} (default: default)."),
            click.option("--tenant", help=f"Tenant of the {self.name} (default: public)."),
        ):
            command = option(command)
        return command

    def instances(self, command: Callable[..., Any]) -> Callable[..., Any]:
        """Add the flags of `names` and ``--instance-id`` to a command."""
        return self.names(
            click.option(
                "--instance-id", "--instance", "instance_id", type=int, help="Id of a single instance (default: all)."
            )(command)
        )

    def config(self, given: dict[str, Any], *, is_new: bool) -> dict[str, Any]:
        """Return the config from file and flags; a new connector without a name is assigned one.

        The file contains a complete config, as in Pulsar, or only the connector's own fields, which become its
        ``configs``.

        Raises:
            Failure: the file or a flag is invalid.
        """
        target = {flag: given.pop(flag) for flag in ("tenant", "namespace", "name")}
        path = given.pop("config_file")
        content = read_config_file(path) if path else {}
        is_short = bool(content) and not any(key in self._fields for key in content)
        config = build_config(self._flags, {} if is_short else self._checked(content, path), given)
        if is_short:  # fields from the flag override individual fields from the file
            config["configs"] = content | (config.get("configs") or {})
        config |= {flag: value for flag, value in target.items() if value}
        if is_new and not config.get("name"):
            config["name"] = self._name_of(config)
        return config

    def _checked(self, content: dict[str, Any], path: str) -> dict[str, Any]:
        for key in content:
            if key not in self._fields:
                own = next(one for one in content if one in self._fields)
                near = nearest(str(key), self._fields)
                raise Failure(
                    f"config file {path}: {key} is not a field of a {self.name.capitalize()}Config"
                    f"{near or f', but {own} is'}{' If it is a field' if near else ': put the fields'} of the connector"
                    f" itself{', put it' if near else ''} below configs"
                )
        return content

    def _name_of(self, config: dict[str, Any]) -> str:
        """Return a default connector name, composed of its type or class and its topic.

        Raises:
            Failure: the type or class, or the topic, is missing.
        """
        archive = str(config.get("archive") or "").removeprefix(BUILT_IN)
        what = str(config.get(f"{self.name}Type") or config.get("className") or "").rpartition(".")[2]
        what = what or archive.rpartition("/")[2].partition(".")[0]
        topics = [config.get("topicName"), *(config.get("inputs") or ()), *(config.get("inputSpecs") or ())]
        topic = next((str(one) for one in topics if one), "").rpartition("/")[2]
        if not what:
            raise Failure(f"no {self.name} specified: add --{self.name}-type NAME or --archive FILE")
        if not topic:
            flag = "--inputs A,B" if self.name == "sink" else "--destination-topic-name TOPIC"
            raise Failure(f"no topic specified for the {self.name}: add {flag}")
        return f"{what}-{topic}"

    def request(self, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the path and parts of a create or update request; raises Failure if the code cannot be read."""
        path = self.path(config.get("tenant"), config.get("namespace"), config.get("name"))
        parts: dict[str, Any] = {f"{self.name}Config": (None, json.dumps(config), "application/json")}
        archive = str(config.get("archive") or "")
        if archive and not archive.startswith(BUILT_IN):
            parts |= package_part(archive, "--archive")
        elif transform := str(config.get("transformFunction") or ""):
            parts |= package_part(transform, "--transform-function")
        return path, parts
