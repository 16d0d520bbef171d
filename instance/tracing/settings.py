"""Read OpenTelemetry's environment variables, without importing OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"


class Wish(NamedTuple):
    """The tracing settings in the environment.

    Attributes:
        variable: environment variable with the endpoint; empty if tracing is disabled.
        refusal: why calls are not traced although an endpoint is set; otherwise empty.
    """

    variable: str
    refusal: str = ""


def wish_of(environment: Mapping[str, str]) -> Wish:
    """Read the tracing settings of the environment."""
    named = [variable for variable in ENDPOINTS if environment.get(variable)]
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if not named or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return Wish("")
    if exporter != "otlp":
        return Wish(
            "", f"unsupported OTEL_TRACES_EXPORTER {exporter!a}: calls are not traced; set it to otlp, or unset it"
        )
    for variable in _PROTOCOLS:
        protocol = environment.get(variable, "").strip()
        if protocol and protocol != _PROTOCOL:
            return Wish(
                "",
                f"unsupported {variable} {protocol!a}: calls are not traced; set it to {_PROTOCOL} and use the"
                " endpoint's port for it, usually 4318",
            )
        if protocol:
            break
    return Wish(named[0])


def batch_setting(environment: Mapping[str, str], variable: str, usual: int) -> int:
    """Return a setting of the span queue, or ``usual`` if it is not set.

    Raises:
        ValueError: the setting is not a positive number.
    """
    text = environment.get(variable, "").strip()
    if not text:
        return usual
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"invalid {variable} {text!a:.40}: expected a positive number")
    return int(text)
