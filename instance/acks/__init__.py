"""Settlement by acknowledgements of single entries and messages: ATLEAST_ONCE, ATMOST_ONCE and MANUAL."""
