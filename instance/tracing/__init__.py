"""Spans of function calls through OpenTelemetry; the only package that imports it, and only if tracing is enabled."""
