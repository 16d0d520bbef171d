"""A server's authentication settings: a frozen record of plain values, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...errors import InvalidConfig

MAX_CLOCK_SKEW_S = 86_400
MAX_REFRESH_CHECK_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecurity:
    """Authentication settings of a server; their ``repr`` contains no secrets.

    Attributes:
        enabled: `authenticationEnabled`; False accepts every client and disables all other settings here.
        providers: `authenticationProviders`; class names of Pulsar, ``token``, ``basic`` and ``tls``, or
            ``module.Class`` for a custom provider (`provider.AuthenticationProvider`). Over HTTP they are tried in this
            order.
        token_secret_key: `tokenSecretKey`; key for HMAC signatures, in one of the forms of `keys.key_bytes`.
        token_public_key: `tokenPublicKey`; key for RSA and ECDSA signatures, in one of the forms of `keys.key_bytes`.
            As in Pulsar, the secret key takes precedence.
        token_public_alg: `tokenPublicAlg`; determines whether the public key is RSA or ECDSA.
        token_auth_claim: `tokenAuthClaim`; the claim that holds the role.
        token_audience_claim: `tokenAudienceClaim`; the claim that holds the audience; empty disables the check.
        token_audience: `tokenAudience`; the required value of that claim, or an element of it if it is a list.
        token_clock_skew_s: `tokenAllowedClockSkewSeconds`; tolerated difference between clocks.
        basic_auth_conf: `basicAuthConf`; an htpasswd file, in one of the forms of `keys.key_bytes`.
        anonymous_role: `anonymousUserRole`; role of clients without credentials; if empty, they are rejected.
        proxy_roles: `proxyRoles`; roles that act for others.
        authenticate_original: `authenticateOriginalAuthData`; proxies must forward their clients' credentials.
        refresh_check_s: `authenticationRefreshCheckSeconds`; interval for checking a connection's credentials.
        authenticate_metrics: `authenticateMetricsEndpoint`; if off, /metrics needs no authentication.
        properties: further settings by name, for custom providers.
        forward_key: hexadecimal key with which a broker signs the roles that it forwards to its worker; cannot be set
            in a file (see `forwarded`).
    """

    enabled: bool = False
    providers: tuple[str, ...] = ()
    token_secret_key: str = field(default="", repr=False)
    token_public_key: str = ""
    token_public_alg: str = "RS256"  # noqa: S105 (a name)
    token_auth_claim: str = "sub"  # noqa: S105 (a name)
    token_audience_claim: str = ""
    token_audience: str = ""
    token_clock_skew_s: float = 0.0
    basic_auth_conf: str = field(default="", repr=False)
    anonymous_role: str = ""
    proxy_roles: tuple[str, ...] = ()
    authenticate_original: bool = False
    refresh_check_s: float = 60.0
    authenticate_metrics: bool = False
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    forward_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Validate ranges; keys are validated when they are read.

        Raises:
            InvalidConfig: a value is out of range; the message names the setting and its range.
        """
        if not 0 <= self.token_clock_skew_s <= MAX_CLOCK_SKEW_S:
            raise InvalidConfig(
                f"invalid tokenAllowedClockSkewSeconds {self.token_clock_skew_s:g}: expected 0 to {MAX_CLOCK_SKEW_S}"
            )
        if not 0 < self.refresh_check_s <= MAX_REFRESH_CHECK_S:
            raise InvalidConfig(
                f"invalid authenticationRefreshCheckSeconds {self.refresh_check_s:g}: expected more than 0 and at"
                f" most {MAX_REFRESH_CHECK_S}"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ServerSecurity:
        """Return the record from the result of `dataclasses.asdict`, even after a round trip through JSON."""
        given = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        kept: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        return cls(**kept)
