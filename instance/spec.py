"""The spec of an instance: all that its process needs to run it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from ..security.client_credentials import ClientCredentials
from ..security.credentials.client_security import ClientSecurity
from ..state.access import StoreAddress
from ..wire.functions_pb2 import FunctionDetails, FunctionMetaData
from .system_user import SystemUser


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Settings shared by all instances of a worker.

    Attributes:
        worker_id: id of the worker.
        service_url: the broker's URL.
        admin_url: the admin REST interface's URL.
        cluster: cluster name.
        state_url: URL of the table service, ``bk://host:port`` or ``bk+ssl://…``; empty without a state store.
        locks_topic: topic of instance locks; empty if no other worker can run the instances.
        secrets_provider: secrets provider, as ``module.Class``; empty for the default.
        secrets_config: settings of the secrets provider as JSON, or empty.
        security: credentials for broker and REST interface, and TLS settings for these and the table service.
    """

    worker_id: str
    service_url: str
    admin_url: str
    cluster: str = "standalone"
    state_url: str = ""
    locks_topic: str = ""
    secrets_provider: str = ""
    secrets_config: str = ""
    security: ClientSecurity = field(default_factory=ClientSecurity)


@dataclass(frozen=True, kw_only=True)
class InstanceSpec(Environment):
    """One instance of a function.

    Attributes:
        metadata: the function's record.
        instance_id: number of the instance, starting at 0.
        package: a .py file, or the directory of modules.
        log_file: receives all output and log records of the function.
        control_socket: the instance's socket for status requests; used by process instances.
        last_words: file to which a process that cannot continue writes the reason.
        libraries: directory of the package's installed requirements, or None.
        user: system user of the process; None for the worker's own user.
        home: home directory of the user, created for this process; None without a user.
        died_of: how the previous process died, or empty if it was stopped.
    """

    metadata: FunctionMetaData
    instance_id: int
    package: Path
    log_file: Path
    control_socket: Path
    last_words: Path
    libraries: Path | None = None
    user: SystemUser | None = None
    home: Path | None = None
    died_of: str = ""

    @property
    def details(self) -> FunctionDetails:
        """The function's details in its record."""
        return self.metadata.functionDetails

    @property
    def function_name(self) -> str:
        """The function's full name, ``tenant/namespace/name``."""
        return f"{self.details.tenant}/{self.details.namespace}/{self.details.name}"

    @property
    def key(self) -> str:
        """The instance's key, ``tenant/namespace/name:instance``."""
        return f"{self.function_name}:{self.instance_id}"

    @cached_property
    def credentials(self) -> ClientCredentials:
        """The instance's credentials for the broker's REST interface."""
        return ClientCredentials(self.security)

    @property
    def state_store(self) -> StoreAddress:
        """Address of the instance's state."""
        return StoreAddress(self.state_url, self.security)

    @property
    def client_security(self) -> ClientSecurity:
        """Security settings for a broker client, without TLS settings that apply only to the state store."""
        return self.security.for_urls(self.service_url, self.admin_url)

    def to_json(self) -> str:
        """Serialise the spec for `from_json`."""
        return json.dumps({one.name: _plain(getattr(self, one.name)) for one in fields(self)})


def from_json(text: str) -> InstanceSpec:
    """Parse a spec written by `InstanceSpec.to_json`."""
    values = json.loads(text)
    values["metadata"] = FunctionMetaData.FromString(b64decode(values["metadata"]))
    values["security"] = ClientSecurity.from_dict(values["security"])
    for path in ("package", "log_file", "control_socket", "last_words"):
        values[path] = Path(values[path])
    for path in ("libraries", "home"):
        if values[path] is not None:
            values[path] = Path(values[path])
    if values["user"] is not None:
        values["user"] = SystemUser(*values["user"])
    return InstanceSpec(**values)


def _plain(value: Any) -> Any:
    """Convert the value of a field to JSON."""
    if isinstance(value, FunctionMetaData):
        return b64encode(value.SerializeToString()).decode()
    if isinstance(value, ClientSecurity):
        return value.to_dict()
    return str(value) if isinstance(value, Path) else value
