"""Reservations: capacity that is kept for somebody, from one time to another."""

from tidegate.model.base import Value
from tidegate.model.jobs import Shape


class ReservationSpec(Value, frozen=True, gc=False, omit_defaults=True):
    """What was asked for: either named nodes, whole, or so many chunks of a shape; a chunk of nothing is a whole node.

    Who may use it: users of `users`, in queues of `queues`; where one of the two is empty it says nothing, where both
    are nobody may, and it is maintenance.
    """

    name: str
    end_ms: int
    start_ms: int = 0  # 0: at once
    pool: str = ""  # "" asks for the default pool
    nodes: tuple[str, ...] = ()  # sorted
    shape: Shape | None = None
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # and their parts
    by: str = ""
    note: str = ""

    @property
    def is_maintenance(self) -> bool:
        return not self.users and not self.queues

    def entitles(self, user: str, queue: str) -> bool:
        if self.is_maintenance or (self.users and user not in self.users):
            return False
        return not self.queues or any(queue == one or queue.startswith(f"{one}/") for one in self.queues)
