"""Everything that an instance needs to know to run; a value that is sent to its process."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

from ..wire.functions_pb2 import FunctionDetails, FunctionMetaData


@dataclass(frozen=True, kw_only=True)
class InstanceSpec:
    """One instance of a function.

    Attributes:
        metadata: the function's record.
        instance_id: which of its instances, from 0 on.
        package: a .py file, or the directory of modules.
        worker_id: the worker that runs it.
        service_url: where the broker listens.
        admin_url: where the admin REST listens.
        log_file: takes everything that the function prints and logs.
        control_socket: the instance's own socket for questions about its status; used by process instances.
        last_words: file in which a process that cannot go on says why.
        cluster: name of the cluster.
        state_url: the table service, ``bk://host:port``; empty if the cluster keeps no state.
        locks_topic: keeps the instances' locks; empty: nobody else can run this instance.
    """

    metadata: FunctionMetaData
    instance_id: int
    package: Path
    worker_id: str
    service_url: str
    admin_url: str
    log_file: Path
    control_socket: Path
    last_words: Path
    cluster: str = "standalone"
    state_url: str = ""
    locks_topic: str = ""

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
        fields: dict[str, str | int] = {name: str(getattr(self, name)) for name in _PATHS + _TEXTS}
        metadata = b64encode(self.metadata.SerializeToString()).decode()
        return json.dumps(fields | {"metadata": metadata, "instance_id": self.instance_id})


_PATHS = ("package", "log_file", "control_socket", "last_words")
_TEXTS = ("worker_id", "service_url", "admin_url", "cluster", "state_url", "locks_topic")


def from_json(text: str) -> InstanceSpec:
    """Return the spec that `InstanceSpec.to_json` wrote."""
    fields = json.loads(text)
    return InstanceSpec(
        metadata=FunctionMetaData.FromString(b64decode(fields["metadata"])),
        instance_id=fields["instance_id"],
        package=Path(fields["package"]),
        log_file=Path(fields["log_file"]),
        control_socket=Path(fields["control_socket"]),
        last_words=Path(fields["last_words"]),
        worker_id=fields["worker_id"],
        service_url=fields["service_url"],
        admin_url=fields["admin_url"],
        cluster=fields["cluster"],
        state_url=fields["state_url"],
        locks_topic=fields["locks_topic"],
    )
