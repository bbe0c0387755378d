"""Results in, a page and its figures out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trueup.report.data import read_results
from trueup.report.reading import alt_text

__all__ = ["write_report"]


def write_report(results: Mapping[str, Any], out_dir: Path) -> Path:
    """Write `out_dir/report.html`, and the figures as SVG and PNG into `out_dir/figures`.

    Args:
        results: what `trueup demo` writes to results.json. Values may be null: never reached or never scored. They are
            drawn as gaps and written as dashes.
        out_dir: made if it is not there.

    Returns:
        The path of the page. It opens without a network and needs no other file.

    Raises:
        DataError: the dict cannot be read as results; nothing was written.
        MissingExtraError: the extra `report` is not installed; nothing was written.
    """
    from trueup.report.figures import panels_of, svg_of, write_figures
    from trueup.report.page import Picture, render_page

    read = read_results(results)
    panels = panels_of(read, lambda kind, scenario, what: alt_text(read, kind, scenario, what))
    pictures = [Picture(panel.kind, panel.title, panel.alt, svg_of(panel)) for panel in panels]
    page = render_page(read, pictures)
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    write_figures(panels, out / "figures")
    path = out / "report.html"
    path.write_text(page, encoding="utf-8")
    return path
