"""A server of some tables: dashboard, API, live changes and metrics for those who look on, and a desk for writers' markers."""

from .access import Access
from .application import Application, named
from .embedded import Embedded
from .guard import Limits
from .markers import MarkerBook
from .serve import Address, Server
from .watched import Watched

__all__ = ["Access", "Address", "Application", "Embedded", "Limits", "MarkerBook", "Server", "Watched", "named"]
