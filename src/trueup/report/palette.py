"""One colour, dash and marker per arm, the same in every figure, in a light and a dark version.

The hues start from those of Okabe and Ito (2008) and stay apart under the three colour blindnesses as Machado et al.
(2009) simulate them; they are darkened for white paper (contrast of at least 3:1) and lightened for dark screens.
Colour is never alone: lines are named where they end and differ in dash and marker. The figures are drawn in the light
colours; the page replaces them by CSS variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CHROME", "OTHER", "STYLES", "Style", "css_variables", "style_of"]


@dataclass(frozen=True, slots=True)
class Style:
    """How one arm is drawn. Colours are lower-case #rrggbb; `dash` is matplotlib's (offset, (on, off, …))."""

    variable: str
    light: str
    dark: str
    dash: Any
    marker: str
    width: float = 1.5


_SOLID: Any = (0, ())
STYLES = {
    "gold": Style("arm-gold", "#22262b", "#f1f3f5", _SOLID, "o"),
    "proxy": Style("arm-proxy", "#a83a00", "#f58e4c", (0, (1.2, 1.4)), "v"),
    "gold_budget": Style("arm-gold-budget", "#bb8800", "#f0c243", (0, (5, 1.6)), "s"),
    "wmrl": Style("arm-wmrl", "#b0478a", "#eb9fcb", (0, (4, 1.4, 1, 1.4)), "D"),
    "control_variate": Style("arm-control-variate", "#2189c4", "#84cff7", (0, (7, 1.4, 1, 1.4, 1, 1.4)), "^"),
    "corrected": Style("arm-corrected", "#0b4f9e", "#5c9df0", _SOLID, "P", 2.4),
    "mse": Style("arm-mse", "#00785a", "#3fcfa2", (0, (2.6, 1.4)), "X"),
}
OTHER = Style("arm-other", "#6d6a75", "#a9a6b3", (0, (3, 1, 1, 1, 1, 1)), "*")

# Everything that is not data: text, axes, grid, paper.
CHROME = {
    "ink": ("#23272f", "#e8eaed"),
    "muted": ("#5b6370", "#a3abb8"),
    "grid": ("#dfe2e7", "#343b46"),
    "paper": ("#fefefe", "#171b21"),
}


def style_of(arm: str) -> Style:
    return STYLES.get(arm, OTHER)


def css_variables(dark: bool) -> dict[str, str]:
    """Every colour of the report by its CSS variable."""
    arms = {s.variable: s.dark if dark else s.light for s in (*STYLES.values(), OTHER)}
    return {name: pair[dark] for name, pair in CHROME.items()} | arms
