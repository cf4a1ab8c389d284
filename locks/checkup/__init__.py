"""A check of a lock service: does it keep what the protocol needs?"""

from .checkup import Verdict, check_up

__all__ = ["Verdict", "check_up"]
