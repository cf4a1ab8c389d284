"""A server for some tables: dashboard, API, live changes and metrics for observers, and marker batching for writers."""

from .application import Application, named
from .embedded import Embedded
from .guard import Access, Limits
from .markers import MarkerBook
from .serve import Address, Server
from .watched import Watched

__all__ = ["Access", "Address", "Application", "Embedded", "Limits", "MarkerBook", "Server", "Watched", "named"]
