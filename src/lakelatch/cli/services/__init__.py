"""Table services, savepoints and restore."""
