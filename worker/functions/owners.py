"""Identity of functions: each function runs with its deployer's role, never with the worker's own credentials.

Design: if the worker has the key for signing tokens, a function's record contains only its owner's role. The worker
issues a token for that role, valid for an hour, to a file that it rewrites before expiry. Clients read the file for
every connection and whenever the broker requests new credentials. Otherwise, the record contains the token that was
used to deploy the function, as with Pulsar's ClearTextFunctionTokenAuthProvider, until an update with `updateAuthData`
replaces it.

A record without an owner was written while authentication was disabled; its instances connect without credentials and
report this in their status.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...errors import InvalidConfig, RequestRefused
from ...instance.system_user import SystemUser
from ...security.authentication.proxies import fault_of_pair
from ...security.authentication.settings import ServerSecurity
from ...security.credentials.client_security import ClientSecurity
from ...security.roles import Roles
from ...wire.functions_pb2 import FunctionAuthenticationSpec, FunctionMetaData

OF_ROLE = "magnetar.RoleToken"
"""Our value of `functionAuthSpec.provider` for records that contain the owner's role."""
OF_TOKEN = "org.apache.pulsar.functions.auth.ClearTextFunctionTokenAuthProvider"  # noqa: S105 (a name)
"""Value of `functionAuthSpec.provider` for records that contain the deployer's token."""
WORKER_ROLE = "functions-worker"
"""The worker's own role if no superuser is configured, that is, without authorization."""
LIFE_S = 3600
"""Lifetime in seconds of tokens issued by the worker."""
RENEWAL_S = 600.0
"""Interval in seconds for renewing the tokens in use."""
_SHOWN_CHARACTERS = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deployer:
    """The client that sends a deployment request.

    Attributes:
        role: role that the function will run as; None if the credentials do not contain a role.
        token: token used for authentication; empty for other credentials and behind a proxy.
    """

    role: str | None
    token: str = field(default="", repr=False)


class Owners:
    """Stores deployers in function records, and provides the credentials of function instances.

    Blocking methods read or write files.
    """

    def __init__(
        self,
        server: ServerSecurity,
        own: ClientSecurity,
        super_users: Sequence[str],
        directory: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the owners.

        Args:
            server: this worker's authentication settings, whose secret key signs the tokens of functions.
            own: the worker's own credentials and TLS settings for the broker.
            super_users: superuser roles, one of which the worker uses if it also signs its own token.
            directory: directory for token files.
            clock: returns seconds since the epoch.
        """
        self._server = server
        self._own = own
        self._own_role = super_users[0] if super_users else WORKER_ROLE
        self._signs_own = False
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._readers: dict[str, set[SystemUser | None]] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether functions have owners."""
        return self._server.enabled

    @property
    def _signs(self) -> bool:
        return bool(self._server.token_secret_key)

    def deployer(self, roles: Roles | None, method: str, authorization: str) -> Deployer | None:
        """Return the sender of a request, or None without authentication.

        Args:
            roles: roles of the request.
            method: authentication method that determined the roles; other credentials in the request were ignored.
            authorization: Authorization header of the request.

        Raises:
            RequestRefused: 401, the sender may not act for the original role.
        """
        if roles is None:
            return None
        if fault_of_pair(roles, self._server.proxy_roles, own_name_passes=True) is not None:
            raise RequestRefused(401, "the request names a role that it may not act for (X-Original-Principal)")
        scheme, _, value = authorization.partition(" ")
        is_own = method == "token" and roles.original is None and scheme == "Bearer"
        return Deployer(roles.original or roles.role, value.strip() if is_own else "")

    def own_security(self) -> ClientSecurity:
        """Return the worker's own credentials, from its settings or as a token that it signs. Blocking.

        Raises:
            InvalidConfig: the worker has no credentials.
        """
        if not self.is_enabled or self._own.auth_plugin:
            return self._own
        if not self._signs:
            raise InvalidConfig(
                "authenticationEnabled: this worker has no credentials for the broker: set"
                " brokerClientAuthenticationPlugin and brokerClientAuthenticationParameters to those of a superuser"
            )
        self._signs_own = True
        return replace(self._own, auth_plugin="token", auth_params=self._write(self._own_role).absolute().as_uri())

    def record(self, metadata: FunctionMetaData, deployer: Deployer | None) -> None:
        """Set the identity of instances in a new record.

        Raises:
            RequestRefused: 400, functions cannot use the credentials of the request.
        """
        spec = self._spec(deployer)
        metadata.ClearField("functionAuthSpec")
        if spec is not None:
            metadata.functionAuthSpec.CopyFrom(spec)

    def _spec(self, deployer: Deployer | None) -> FunctionAuthenticationSpec | None:
        if not self.is_enabled or deployer is None:
            return None
        if deployer.role is None:
            raise RequestRefused(
                400, "the function has no role to run as: the credentials of the request do not contain one"
            )
        if self._signs:
            return FunctionAuthenticationSpec(provider=OF_ROLE, data=deployer.role.encode())
        if deployer.token:
            return FunctionAuthenticationSpec(provider=OF_TOKEN, data=deployer.token.encode())
        raise RequestRefused(
            400,
            "the function has no credentials for the broker, because this worker has no tokenSecretKey to sign a"
            " token: deploy the function with a token",
        )

    def renew(
        self, metadata: FunctionMetaData, existing: FunctionMetaData, deployer: Deployer | None, *, updates: bool
    ) -> None:
        """Set the identity of instances in the record of an update: the previous owner or the updating client.

        Args:
            metadata: the new record.
            existing: the previous record.
            deployer: the client that updates the function.
            updates: whether to change the owner to the updating client (`updateAuthData`).

        Raises:
            RequestRefused: 403, one role's code would run as another role; 400, same as `record`.
        """
        if not self.is_enabled or deployer is None:
            return
        owner = self.owner_of(existing)
        if updates or owner is None:
            self.record(metadata, deployer)
        elif owner != deployer.role:
            raise RequestRefused(
                403,
                f"the function runs as {owner[:_SHOWN_CHARACTERS]!r}, and only that role may change its code: send the"
                " request as that role, or use updateAuthData to run the function as your role",
            )

    def owner_of(self, metadata: FunctionMetaData) -> str | None:
        """Return the role that a record's instances run as, or None if the record has no known role."""
        spec = metadata.functionAuthSpec
        if spec.provider != OF_TOKEN:
            return self.signed_role(metadata)
        # The token was verified with the deployment request.
        role = _claims(spec.data).get(self._server.token_auth_claim or "sub")
        if isinstance(role, list) and role:
            role = role[0]
        return role if isinstance(role, str) and role.strip() else None

    @staticmethod
    def signed_role(metadata: FunctionMetaData) -> str | None:
        """Return the role for which this worker signs a token for a record, or None."""
        spec = metadata.functionAuthSpec
        return spec.data.decode("utf-8", "replace") if spec.provider == OF_ROLE else None

    def expires_at(self, metadata: FunctionMetaData) -> float | None:
        """Return the expiry time of a record's credentials in seconds since the epoch; None if they do not expire."""
        spec = metadata.functionAuthSpec
        expires = _claims(spec.data).get("exp") if spec.provider == OF_TOKEN else None
        return float(expires) if isinstance(expires, int | float) else None

    def security_of(self, metadata: FunctionMetaData, user: SystemUser | None = None) -> ClientSecurity:
        """Return the credentials of a record's instances. Blocking.

        Args:
            metadata: the record.
            user: system user that runs the instances; None for this process's user.

        Raises:
            InvalidConfig: this worker cannot create the credentials required by the record.
        """
        if not self.is_enabled:
            return self._own
        checks = replace(self._own, auth_plugin="", auth_params="", tls_certificate_file="", tls_key_file="")
        spec = metadata.functionAuthSpec
        role = self.signed_role(metadata)
        if role is not None:
            file = self._token_file(role, user)
            return replace(checks, auth_plugin="token", auth_params=file.absolute().as_uri())
        if spec.provider == OF_TOKEN:
            return replace(checks, auth_plugin="token", auth_params=f"token:{spec.data.decode('ascii', 'replace')}")
        return checks

    def _token_file(self, role: str, user: SystemUser | None) -> Path:
        if not self._signs:
            raise InvalidConfig(
                f"the function runs as {role[:_SHOWN_CHARACTERS]!r}, but this worker has no tokenSecretKey to sign a"
                " token for that role: set the same key on all workers"
            )
        with self._lock:
            self._asked.add(role)
            self._readers.setdefault(role, set()).add(user)
            return self._write(role, user)

    def _write(self, role: str, user: SystemUser | None = None) -> Path:
        """Write a new token for a role, readable by a user, and replace the file atomically."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._file_of(role, user)
        if user is not None:
            self._directory.chmod(0o711)  # lets the user traverse the directory to its own file
        temporary = file.with_suffix(f".{os.getpid()}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as out:
            if user is not None:
                os.fchown(out.fileno(), user.uid, user.gid)
            out.write(self._token(role))
        temporary.replace(file)
        return file

    def _file_of(self, role: str, user: SystemUser | None) -> Path:
        name = hashlib.sha256(role.encode("utf-8", "backslashreplace")).hexdigest()[:32]
        return self._directory / (name if user is None else f"{name}-{user.uid}")

    def _token(self, role: str) -> str:
        import jwt  # imported here because it is needed only for signing tokens

        from ...security.authentication.keys import key_bytes

        server, now = self._server, int(self._clock())
        claims: dict[str, object] = {server.token_auth_claim or "sub": role, "iat": now, "exp": now + LIFE_S}
        if server.token_audience_claim:
            claims[server.token_audience_claim] = server.token_audience
        return jwt.encode(claims, key_bytes("tokenSecretKey", server.token_secret_key), "HS256")

    async def keep_renewed(self, in_use: Callable[[], set[str]], pause_s: float = RENEWAL_S) -> None:
        """Renew the tokens of all roles used by functions on this worker, until cancelled.

        Args:
            in_use: returns the roles in use; token files of other roles are removed.
            pause_s: interval between renewals.
        """
        while True:
            await asyncio.to_thread(self._renew, in_use())
            await asyncio.sleep(pause_s)

    def _renew(self, in_use: set[str]) -> None:
        with self._lock:
            # Roles requested since the last renewal may not be in use yet.
            roles, self._asked = in_use | self._asked, set()
            if self._signs_own:
                roles.add(self._own_role)
            self._renew_all(roles)

    def _renew_all(self, roles: set[str]) -> None:
        self._readers = {role: self._readers.get(role, {None}) for role in roles}
        needed = [(role, user) for role, users in self._readers.items() for user in users]
        for file in set(self._directory.glob("*")) - {self._file_of(*one) for one in needed}:
            file.unlink(missing_ok=True)
        for role, user in needed:
            try:
                self._write(role, user)
            except (OSError, InvalidConfig) as error:
                _log.warning("cannot renew the token for functions of %s: %s", role[:_SHOWN_CHARACTERS], error)


def _claims(token: bytes) -> dict[str, object]:
    """Return a token's unverified claims, which are only displayed here; the broker verifies the token."""
    import jwt

    try:
        return dict(jwt.decode(token.decode("ascii"), options={"verify_signature": False}))
    except (jwt.InvalidTokenError, ValueError):
        return {}
