"""Names for functions' dead letters: properties written by instances, and the subscription that retains letters."""

from __future__ import annotations

EXCEPTION = "EXCEPTION"
TRACEBACK = "TRACEBACK"
TRIES = "TRIES"
FUNCTION = "FUNCTION"
"""Its value is ``tenant/namespace/name``."""
FUNCTION_VERSION = "FUNCTION_VERSION"
LETTERS_SUFFIX = "-dead-letters"
"""Suffix to a function's full name: the subscription that retains letters in the dead letter topic until consumed."""
