"""Authorization: operations, the rules for each of them, and grants."""
