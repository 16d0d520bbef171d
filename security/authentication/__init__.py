"""How a server finds out who asks: providers for tokens, passwords and certificates."""
