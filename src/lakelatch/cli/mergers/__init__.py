"""``lakelatch mergers``: list them, and check the laws of one."""
