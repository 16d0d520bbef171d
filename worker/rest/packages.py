"""`/admin/v3/packages`: packages stored under a name and version."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from ...errors import PackageError, RequestRefused
from ...metadata.packages import PackageStore
from ...web.answers import as_json
from ...wire.strict_json import NotJson, read_json
from ..functions.package_index import PackageIndex, PackageName, package_name_of
from .app import WorkerCall, WorkerRoutes
from .multipart import Part, json_part

METADATA_BYTES_MAX = 256 * 1024
"""Maximum bytes of a package's metadata; every worker keeps the metadata of all packages in memory."""
_NAMESPACE = "/admin/v3/packages/{type}/{tenant}/{namespace}"
_ONE = _NAMESPACE + "/{name}/{version}"
_SHOWN = ("description", "contact", "createTime", "modificationTime", "properties")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PackagesRoutes:
    """Handlers of one worker.

    Attributes:
        index: package index.
        packages: contents of the packages.
    """

    index: PackageIndex
    packages: PackageStore

    def routes(self) -> WorkerRoutes:
        """Return the routes."""
        return (
            ("GET", _NAMESPACE, self.list_names),
            ("GET", f"{_NAMESPACE}/{{name}}", self.list_versions),
            ("POST", _ONE, self.upload),
            ("GET", _ONE, self.download),
            ("DELETE", _ONE, self.delete),
            ("GET", f"{_ONE}/metadata", self.get_metadata),
            ("PUT", f"{_ONE}/metadata", self.put_metadata),
        )

    async def list_names(self, call: WorkerCall) -> Response:
        """Return the names of a namespace's packages."""
        name = _name(call, name="x", version="x")
        found = await self.index.names(name.type, name.tenant, name.namespace)
        return as_json(sorted({one.name for one in found}))

    async def list_versions(self, call: WorkerCall) -> Response:
        """Return the versions of a package."""
        name = _name(call, version="x")
        found = await self.index.names(name.type, name.tenant, name.namespace)
        return as_json([one.version for one in found if one.name == name.name])

    async def upload(self, call: WorkerCall) -> None:
        """Store the part `file` under a name, with the metadata from the part `metadata` (JSON)."""
        name = _name(call)
        form = await call.form("file", self.packages)
        upload = form.get("file", Part()).upload
        try:
            sent = json_part(form, "metadata", max_bytes=METADATA_BYTES_MAX)
            if sent is None or upload is None:
                missing = "metadata" if sent is None else "file"
                raise RequestRefused(400, f"the part {missing} is missing: send metadata (JSON) and file")
            file_name = form["file"].file_name or name.name
            record = {
                **_metadata(sent), "createTime": _now_ms(), "modificationTime": _now_ms(),
                "packageId": upload.package_id, "fileName": file_name, "size": upload.size,
            }  # fmt: skip

            def decide(there: Json | None) -> Json:
                if there is not None:
                    raise RequestRefused(
                        409, f"Package '{name}' metadata already exists: delete the package, or use another version"
                    )
                return record

            with self.packages.used(upload.package_id):
                await self.packages.keep(upload, file_name)
                await self.index.change(name, decide)
                # An unreferenced package stored long ago may have been removed between these two calls.
                await self.packages.keep(upload, file_name, is_named=True)
        finally:
            if upload is not None:
                await self.packages.discard(upload)

    async def download(self, call: WorkerCall) -> Response:
        """Return a package unchanged."""
        record = await self.index.get(_name(call))
        try:
            path = await self.packages.assemble(record["packageId"])
        except PackageError as exc:
            raise RequestRefused(500, str(exc)) from exc
        remove = BackgroundTask(asyncio.to_thread, path.unlink, missing_ok=True)
        return FileResponse(path, media_type="application/octet-stream", background=remove)

    async def delete(self, call: WorkerCall) -> None:
        """Remove a package; functions created from it keep their code."""
        name = _name(call)

        def decide(there: Json | None) -> None:
            _existing(name, there)

        await self.index.change(name, decide)

    async def get_metadata(self, call: WorkerCall) -> Response:
        """Return the description, contact, times and properties of a package."""
        record = await self.index.get(_name(call))
        return as_json({key: record.get(key) for key in _SHOWN})

    async def put_metadata(self, call: WorkerCall) -> None:
        """Replace the description, contact and properties of a package."""
        name = _name(call)
        try:
            sent = read_json(await call.body_bytes(METADATA_BYTES_MAX))
        except NotJson as exc:
            raise RequestRefused(400, f"the request is not JSON: {exc}") from exc
        changes = _metadata(sent)

        def decide(there: Json | None) -> Json:
            return {**_existing(name, there), **changes, "modificationTime": _now_ms()}

        await self.index.change(name, decide)


def _name(call: WorkerCall, **given: str) -> PackageName:
    parts = (given.get(part) or call.name(part) for part in ("tenant", "namespace", "name", "version"))
    return package_name_of(call.name("type"), *parts)


def _existing(name: PackageName, there: Json | None) -> Json:
    if there is None:
        raise RequestRefused(404, f"Package '{name}' does not exist")
    return there


def _metadata(sent: Any) -> Json:
    """Return the metadata fields that clients may set; the times are set by the server."""
    if not isinstance(sent, Mapping):
        raise RequestRefused(400, "the metadata must be a JSON object")
    properties = sent.get("properties") or {}
    texts = [sent.get(key) or "" for key in ("description", "contact")]
    if not isinstance(properties, Mapping) or not all(isinstance(one, str) for one in (*texts, *properties.values())):
        raise RequestRefused(
            400, "description and contact must be strings, and properties an object with string values"
        )
    return {"description": texts[0], "contact": texts[1] or None, "properties": dict(properties)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
