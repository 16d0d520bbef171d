"""`magnetar init`: a starter project."""
