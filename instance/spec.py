"""Everything that an instance needs to know to run; a value that is sent to its process."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

from ..wire.functions_pb2 import FunctionDetails, FunctionMetaData
from .system_user import SystemUser


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What all instances of a worker have in common.

    Attributes:
        worker_id: the worker that runs them.
        service_url: where the broker listens.
        admin_url: where the admin REST listens.
        cluster: name of the cluster.
        state_url: the table service, ``bk://host:port``; empty if the cluster keeps no state.
        locks_topic: keeps the instances' locks; empty: nobody else can run one of these.
        secrets_provider: class that finds secrets, ``module.Class``; empty for the usual one.
        secrets_config: what it is told, as JSON; empty for nothing.
    """

    worker_id: str
    service_url: str
    admin_url: str
    cluster: str = "standalone"
    state_url: str = ""
    locks_topic: str = ""
    secrets_provider: str = ""
    secrets_config: str = ""


@dataclass(frozen=True, kw_only=True)
class InstanceSpec(Environment):
    """One instance of a function.

    Attributes:
        metadata: the function's record.
        instance_id: which of its instances, from 0 on.
        package: a .py file, or the directory of modules.
        log_file: takes everything that the function prints and logs.
        control_socket: the instance's own socket for questions about its status; used by process instances.
        last_words: file in which a process that cannot go on says why.
        libraries: directory of the package's installed requirements; None if it has none.
        user: whom its process runs as; None for the worker's own user.
        home: the directory of that user for this process, new with each; None without a user.
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

    @property
    def details(self) -> FunctionDetails:
        """The function's description."""
        return self.metadata.functionDetails

    @property
    def function_name(self) -> str:
        """``tenant/namespace/name``."""
        return f"{self.details.tenant}/{self.details.namespace}/{self.details.name}"

    @property
    def key(self) -> str:
        """``tenant/namespace/name:instance``."""
        return f"{self.function_name}:{self.instance_id}"

    def to_json(self) -> str:
        """Return the spec as text for `from_json`."""
        fields = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        fields["metadata"] = b64encode(self.metadata.SerializeToString()).decode()
        return json.dumps(fields)


def from_json(text: str) -> InstanceSpec:
    """Return the spec that `InstanceSpec.to_json` wrote."""
    fields = json.loads(text)
    fields["metadata"] = FunctionMetaData.FromString(b64decode(fields["metadata"]))
    for path in ("package", "log_file", "control_socket", "last_words"):
        fields[path] = Path(fields[path])
    for path in ("libraries", "home"):
        if fields[path] is not None:
            fields[path] = Path(fields[path])
    if fields["user"] is not None:
        fields["user"] = SystemUser(*fields["user"])
    return InstanceSpec(**fields)
