"""Authorization: operations, their rules, and grants."""
