"""End-to-end encryption of messages: key handling, and encryption and decryption of entry bodies."""
