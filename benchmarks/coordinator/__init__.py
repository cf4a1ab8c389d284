"""Benchmarks of the commit coordinator: ``python -m benchmarks.coordinator``."""
