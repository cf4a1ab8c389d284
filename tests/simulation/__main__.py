"""`python -m tests.simulation SEED`: one schedule, with its trace; ``"Shape(...)"`` instead of a seed is a shrunk one."""

import sys

from .shape import Shape
from .soak import story

given = sys.argv[1]
print(story(Shape.of(int(given)) if given.isdigit() else eval(given, {"Shape": Shape})))  # typed by its user
