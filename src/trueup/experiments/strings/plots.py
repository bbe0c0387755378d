"""The curves of the arms: held-out pass rate over steps, over gold executions and over measured seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trueup.errors import MissingExtraError

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError("Drawing the curves", "report", error.name or "matplotlib") from None

__all__ = ["draw"]

_STYLES = ("-", "--", "-.", ":")
_AXES = (("step", "training steps"), ("gold_executions", "gold executions"), ("seconds", "measured seconds"))


def draw(results: Mapping[str, Any], out: Path) -> list[Path]:
    """One SVG per world model in `out`; returns their paths."""
    paths = []
    for key, title in (("arms", "honest world model"), ("hackable", "hackable world model")):
        if results[key]:
            path = out / f"curves_{'honest' if key == 'arms' else key}.svg"
            _curves(results[key], title).savefig(path, metadata={"Date": None})
            paths.append(path)
    return paths


def _curves(arms: Mapping[str, Any], title: str) -> Figure:
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    colours = matplotlib.colormaps["cividis"].resampled(max(2, len(arms)))
    for axes, (name, label) in zip(figure.subplots(1, 3, sharey=True), _AXES, strict=True):
        for i, (arm, result) in enumerate(arms.items()):
            x = [point[name] for point in result["curve"]]
            y = [point["pass_rate"]["mean"] for point in result["curve"]]
            axes.plot(
                x, y, _STYLES[i % len(_STYLES)], color=colours(i), marker="os^Dv"[i % 5], ms=4, label=arm
            )
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("held-out pass rate")
    figure.axes[0].legend(fontsize="small")
    figure.suptitle(title)
    return figure
