"""`python -m tests.simulation SEED`: one schedule, with its trace."""

import sys

from .world import Shape, World

world = World(Shape.of(int(sys.argv[1])), trace=True)
print(world.shape)
try:
    world.run()
finally:
    print("\n".join(world.scheduler.trace or ()))
