"""What commands that compute and then print a table have in common."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress_bar", "wide_console"]

_WIDTH = 110


def wide_console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for a table when it goes to a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def progress_bar() -> Progress:
    """A bar on standard error that leaves nothing behind."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
