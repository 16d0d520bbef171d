"""What a server can be told about authentication: one frozen record of plain values, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...errors import InvalidConfig

MAX_CLOCK_SKEW_S = 86_400
MAX_REFRESH_CHECK_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecurity:
    """How a server authenticates; its representation has no secrets.

    Attributes:
        enabled: `authenticationEnabled`; False takes whoever comes, and nothing else here has an effect.
        providers: `authenticationProviders`; class names of Pulsar, ``token``, ``basic`` and ``tls``, or
            ``module.Class`` for a provider of one's own (`provider.AuthenticationProvider`). Over HTTP they are asked
            in this order.
        token_secret_key: `tokenSecretKey`; key of HMAC signatures, in one of the forms of `keys.key_bytes`.
        token_public_key: `tokenPublicKey`; key of RSA and ECDSA signatures, likewise. As in Pulsar, the secret key
            counts where both are given.
        token_public_alg: `tokenPublicAlg`; says whether the public key is of RSA or ECDSA.
        token_auth_claim: `tokenAuthClaim`; which claim of a token is the role.
        token_audience_claim: `tokenAudienceClaim`; which claim says for whom a token is; empty does not look.
        token_audience: `tokenAudience`; what that claim has to be, or to hold if it is a list.
        token_clock_skew_s: `tokenAllowedClockSkewSeconds`; how far other clocks may be off.
        basic_auth_conf: `basicAuthConf`; a htpasswd file, in one of the forms of `keys.key_bytes`.
        anonymous_role: `anonymousUserRole`; of who shows no credentials; empty refuses them.
        proxy_roles: `proxyRoles`; those that ask for others.
        authenticate_original: `authenticateOriginalAuthData`; proxies have to pass on their clients' credentials.
        refresh_check_s: `authenticationRefreshCheckSeconds`; how often a connection's credentials are looked at.
        authenticate_metrics: `authenticateMetricsEndpoint`; without it everybody may read /metrics.
        properties: further settings by name, for providers of one's own.
        forward_key: key in hexadecimal digits, by which a broker tells the worker that it supervises who asks; in no
            file, see `forwarded`.
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
        """Check ranges; whether the keys are there and fit is found out by those who read them.

        Raises:
            InvalidConfig: names the setting and its range.
        """
        if not 0 <= self.token_clock_skew_s <= MAX_CLOCK_SKEW_S:
            raise InvalidConfig(
                f"tokenAllowedClockSkewSeconds {self.token_clock_skew_s:g} is out of range; give 0 to"
                f" {MAX_CLOCK_SKEW_S}"
            )
        if not 0 < self.refresh_check_s <= MAX_REFRESH_CHECK_S:
            raise InvalidConfig(
                f"authenticationRefreshCheckSeconds {self.refresh_check_s:g} is out of range; give more than 0 and at"
                f" most {MAX_REFRESH_CHECK_S}"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ServerSecurity:
        """Return the record of what `dataclasses.asdict` made of one, also after a way through JSON."""
        given = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        kept: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        return cls(**kept)
