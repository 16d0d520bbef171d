"""Settlements that acknowledge individual entries and messages: ATLEAST_ONCE, ATMOST_ONCE and MANUAL."""
