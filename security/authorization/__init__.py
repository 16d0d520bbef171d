"""What a role may do: the operations, who is allowed each of them, and the grants."""
