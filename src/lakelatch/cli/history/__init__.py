"""What happened to a table: its timeline, as it happens, and why a transaction lost."""
