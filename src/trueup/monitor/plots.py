"""Reliability plots, behind the extra `report` (matplotlib, imported here only)."""

from __future__ import annotations

from pathlib import Path

from trueup.errors import MissingExtraError
from trueup.monitor.audit import Audit

__all__ = ["plot_reliability"]


def plot_reliability(result: Audit, folder: Path) -> list[Path]:
    """One PNG a family with enough pairs: mean gold against mean score in ten bins of equal mass, with bands
    of two standard errors over groups. Returns the files."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("A reliability plot", "report", "matplotlib") from None
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, (name, family) in enumerate(result.families.items()):
        if family.calibration is None:
            continue
        curve = family.calibration.curve
        figure = Figure(figsize=(4.2, 4.0), layout="constrained")
        axes = figure.add_subplot()
        score, gold = [b.score for b in curve], [b.gold for b in curve]
        ends = [min(score + gold), max(score + gold)]
        axes.plot(ends, ends, color="0.6", linewidth=1, label="calibrated")
        axes.errorbar(
            score, gold, [2 * b.error for b in curve], marker="o", capsize=2, label=family.score_source
        )
        axes.set(
            xlabel="score", ylabel="gold", title=f"{name}: calibration error {family.calibration.ece:.3f}"
        )
        axes.legend(frameon=False)
        path = folder / f"reliability-{number:02d}.png"  # family names are anyone's text: not in a path
        figure.savefig(path, dpi=120)
        written.append(path)
    return written
