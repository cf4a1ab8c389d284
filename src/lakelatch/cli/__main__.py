"""Run ``python -m lakelatch.cli``."""

from . import main

main()
