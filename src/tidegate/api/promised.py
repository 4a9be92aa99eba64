"""How this server keeps its promises: a watcher of the journal that counts, for whoever asks for its status."""

from collections.abc import Sequence

from tidegate.loop.promises import Promises
from tidegate.model.base import ARRAY_BITS
from tidegate.model.events import Event
from tidegate.world.world import World

LATE_KEPT_MAX = 10_000


class PromisesKept:
    """Since this server began."""

    def __init__(self, world: World) -> None:
        self.book = Promises(lambda task: world.jobs[task >> ARRAY_BITS].estimate_ms, LATE_KEPT_MAX)
        self.book.percent = world.policy.backfill.slip_percent

    def seen(self, events: Sequence[Event]) -> None:
        for event in events:
            self.book.note(event)

    def safe(self, seq: int, events: Sequence[Event]) -> None:
        pass

    def told(self) -> dict[str, int]:
        book = self.book
        return {
            "made": book.made,
            "kept": book.kept,
            "late_p50_ms": book.late_percentile(50),
            "late_p90_ms": book.late_percentile(90),
            "late_max_ms": book.late_percentile(100),
            **{f"late_by_{cause}": count for cause, count in book.late_by.items()},
            "slip_max_percent": book.backfill_percent_max,
        }
