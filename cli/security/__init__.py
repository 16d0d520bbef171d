"""Keys, tokens and certificates, made on this machine."""
