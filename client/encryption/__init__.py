"""End-to-end encryption of messages: keys, and what encrypts and decrypts the bodies of entries."""
