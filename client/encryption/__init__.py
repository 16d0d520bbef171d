"""End-to-end encryption of messages: keys, and encryption and decryption of entry bodies."""
