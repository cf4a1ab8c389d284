"""The contention lab's commands."""
