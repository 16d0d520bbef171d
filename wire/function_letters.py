"""Names for functions' dead letters: properties written by instances, and the subscription that retains letters."""

from __future__ import annotations

EXCEPTION = "EXCEPTION"
TRACEBACK = "TRACEBACK"
TRIES = "TRIES"
FUNCTION = "FUNCTION"
"""Property with the function's ``tenant/namespace/name``."""
FUNCTION_VERSION = "FUNCTION_VERSION"
LETTERS_SUFFIX = "-dead-letters"
"""Suffix to a function's full name for the subscription that retains its dead letters until they are consumed."""
