"""Locks in DynamoDB, wire-compatible with Hudi's DynamoDBBasedLockProvider."""

from .backend import dynamodb_locks_on, open_dynamodb_locks
