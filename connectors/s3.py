"""Shared parts of the ``s3`` source and sink: connection settings, the client and its errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..api.connector import Retry
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need


@dataclass(kw_only=True)
class S3Config:
    """Connection settings of the ``s3`` connectors."""

    path: str = option("Bucket and prefix of the objects, such as s3://bucket/orders/.", aliases=("url",))
    endpoint: str = option("Service URL; empty for AWS.", default="")
    region: str = option("Bucket region; empty to use the region of the environment.", default="")
    access_key_id: str = option(
        "Access key ID; empty to use the default AWS credential chain.", default="", secret=True
    )
    secret_access_key: str = option("Secret access key.", default="", secret=True)
    session_token: str = option("Session token for temporary credentials.", default="", secret=True)
    timeout: float = option("Timeout for connecting and for responses, in seconds.", default=30.0, limits=(0.1, 3600))


def bucket_and_prefix(config: S3Config) -> tuple[str, str]:
    """Return the bucket and the prefix of its objects.

    Raises:
        InvalidConfig: ``path`` is invalid.
    """
    scheme, _, rest = config.path.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise InvalidConfig(f"invalid path {config.path!r}: expected s3://bucket/prefix")
    return bucket, prefix


def check_s3(config: S3Config) -> None:
    """Raise InvalidConfig if client settings contradict each other."""
    bucket_and_prefix(config)
    if bool(config.access_key_id) != bool(config.secret_access_key):
        raise InvalidConfig("accessKeyId and secretAccessKey must be set together")
    if config.endpoint and not config.endpoint.startswith(("http://", "https://")):
        raise InvalidConfig(f"invalid endpoint {config.endpoint!r}: expected a URL starting with http:// or https://")


def make_client(config: S3Config) -> Any:
    """Return a client without sending requests. The client does not retry, because the instance does."""
    boto3: Any = need("s3", "boto3")
    settings: Any = need("s3", "botocore.config")
    session = boto3.session.Session(
        aws_access_key_id=config.access_key_id or None,
        aws_secret_access_key=config.secret_access_key or None,
        aws_session_token=config.session_token or None,
        region_name=config.region or None,
    )
    return session.client(
        "s3",
        endpoint_url=config.endpoint or None,
        region_name=session.region_name or "us-east-1",
        config=settings.Config(
            connect_timeout=config.timeout,
            read_timeout=config.timeout,
            retries={"total_max_attempts": 1},
            # Many S3-compatible services reject checksums in trailers.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@contextlib.contextmanager
def retried(path: str) -> Iterator[None]:
    """Convert errors of the client and the service, which are never caused by a record, to Retry."""
    exceptions: Any = need("s3", "botocore.exceptions")
    http: Any = need("s3", "urllib3.exceptions")
    try:
        yield
    except exceptions.ClientError as error:
        details = error.response.get("Error", {})
        raise Retry(f"{path}: {details.get('Code')}: {' '.join(str(details.get('Message')).split())[:300]}") from error
    except (exceptions.BotoCoreError, http.HTTPError, OSError) as error:
        raise Retry(f"{path}: {type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
