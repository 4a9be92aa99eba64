"""Tables and durations for people."""

from collections.abc import Sequence


def duration(seconds: float) -> str:
    """Two units are enough to feel how long it is."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.0f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02} h"


def show_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    """`left`: the columns that hold words; numbers stand to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, head in enumerate(heads):
        table.add_column(Text(head), justify="left" if at in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 4096  # a file has no edge to fold at
    print(title)
    console.print(table)
