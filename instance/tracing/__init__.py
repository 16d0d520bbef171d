"""Spans of function calls; the only package that imports OpenTelemetry, and only if tracing is enabled."""
