"""`GET …/functions/{tenant}/{namespace}/{name}/ended`: one worker asks another; ours alone."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from ..functions.instances import Instances
from ..functions.service import FunctionName
from .answers import nothing


def ended_router(instances: Instances) -> APIRouter:
    """Return the route."""
    router = APIRouter(prefix="/admin/v3/functions", tags=["functions"])

    async def ended(tenant: str, namespace: str, name: str) -> Response:
        """Answer once no instance of a stopped function runs on this worker."""
        await instances.ended_here(FunctionName(tenant, namespace, name))
        return nothing()

    router.add_api_route("/{tenant}/{namespace}/{name}/ended", ended, methods=["GET"], response_model=None)
    return router
