"""Names in dead letters of functions: the properties that instances write, and the subscription that keeps letters."""

from __future__ import annotations

EXCEPTION = "EXCEPTION"
TRACEBACK = "TRACEBACK"
TRIES = "TRIES"
FUNCTION = "FUNCTION"
"""Its value is ``tenant/namespace/name``."""
FUNCTION_VERSION = "FUNCTION_VERSION"
LETTERS_SUFFIX = "-dead-letters"
"""Behind a function's full name: the subscription of its dead-letter topic that keeps letters until they are taken."""
