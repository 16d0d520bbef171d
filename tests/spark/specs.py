"""Specs of functions for a test's host, which reads files in the function's directory instead of code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from magnetar.instance.spec import InstanceSpec
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData

MakeSpec = Callable[..., InstanceSpec]


def make_spec(directory: Path, name: str = "f", **files: str) -> InstanceSpec:
    """Return the spec of a function with these files."""
    package = directory / name
    package.mkdir(exist_ok=True)
    for file, text in files.items():
        (package / file).write_text(text)
    details = FunctionDetails(tenant="public", namespace="default", name=name, className="f.process")
    return InstanceSpec(
        metadata=FunctionMetaData(functionDetails=details, functionUuid=f"uuid of {name}"),
        instance_id=0, package=package, worker_id="w", service_url="", admin_url="",
        log_file=directory / f"{name}.log", control_socket=directory / "socket", last_words=directory / "words",
    )  # fmt: skip
