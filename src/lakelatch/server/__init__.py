"""A server for people and programs that look on: dashboard, API, live changes and metrics of the tables it watches."""

from .access import Access
from .application import Application, named
from .guard import Limits
from .serve import Address, Server
from .watched import Watched

__all__ = ["Access", "Address", "Application", "Limits", "Server", "Watched", "named"]
