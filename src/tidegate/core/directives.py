"""`directives`: what the engine is to do, derived from state alone, so a crash between two turns loses nothing.

`after` is a cursor that only saves work: what was derived up to that event number has been delivered. With 0
everything unconfirmed is derived again, and engines ignore what they have.
"""

from tidegate.model.base import ARRAY_BITS
from tidegate.model.engine import Directive, Halt, Launch
from tidegate.model.jobs import Outcome
from tidegate.world.world import World


def directives(world: World, after: int = 0) -> list[Directive]:
    wanted: list[Directive] = []
    for task, seq in reversed(world.launching.items()):  # newest last: stop at the first that was delivered
        if seq <= after:
            break
        run = world.runs[task]
        wanted.append(Launch(task, run.attempt, world.jobs[task >> ARRAY_BITS], run.nodes))
    wanted.reverse()
    for task, halt in world.halting.items():
        if halt.seq > after:
            wanted.append(Halt(task, halt.attempt, halt.outcome))
    for (task, attempt), seq in world.strays.items():
        if seq > after:
            wanted.append(Halt(task, attempt, Outcome.LOST))
    return wanted
