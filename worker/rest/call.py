"""One request to a worker: the function and the instance in its path."""

from __future__ import annotations

from ...errors import ConnectionLost, MagnetarError, OperationTimeout, PackageError
from ...web.answers import Refused
from ...web.call import Call
from ...web.router import Routes
from ..functions.service import FunctionName

ONE_FUNCTION = "/admin/v3/functions/{tenant}/{namespace}/{name}"


class WorkerCall(Call):
    """A request under way."""

    def name(self, parameter: str) -> str:
        """Return a path parameter that is one segment, decoded; with a slash in it there is no such path."""
        text = self.text(parameter)
        if "/" in text:
            raise Refused(404, f"no such path: {self.request.scope['path']}")
        return text

    @property
    def function(self) -> FunctionName:
        """The function in the path."""
        return FunctionName(self.name("tenant"), self.name("namespace"), self.name("name"))

    def instance_id(self, what: str) -> int:
        """Return the number of the instance in the path, for a request of that kind."""
        text = self.name("instance_id")
        try:
            return int(text)
        except ValueError:
            raise Refused(400, f"{what}: instance id {text!r} is not a number") from None

    def optional_instance_id(self, what: str) -> int | None:
        """Return the number of the instance in the path, None where the path is that of all instances."""
        return self.instance_id(what) if "instance_id" in self.request.path_params else None


WorkerRoutes = Routes[WorkerCall]


def refuse(error: MagnetarError) -> Refused:
    """Return how an error is answered."""
    if isinstance(error, PackageError):
        return Refused(400, str(error))
    status = 503 if isinstance(error, ConnectionLost | OperationTimeout) else 500
    return Refused(status, f"{type(error).__name__}: {error}")
