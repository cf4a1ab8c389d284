"""Locks in DynamoDB, wire-compatible with Hudi's DynamoDBBasedLockProvider."""

from .backend import open_dynamodb_locks

__all__ = ["open_dynamodb_locks"]
