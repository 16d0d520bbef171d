"""Settlement by acknowledging single entries and messages: ATLEAST_ONCE, ATMOST_ONCE and MANUAL."""
