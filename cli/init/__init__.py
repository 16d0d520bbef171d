"""`magnetar init`: a project to begin with."""
