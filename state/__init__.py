"""What functions remember: the table service, its client, and the function's view of it."""
