"""Creation of keys, tokens and certificates on this machine."""
