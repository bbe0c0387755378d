"""The figures; the only module that imports matplotlib.

Each panel is drawn by one function on given axes, so that the files (all panels of a figure together) and the page
(one SVG per panel, which can stack on a phone) show the same artists. No pyplot: figures are objects that are let go,
no global state is touched and no display is needed. SVG output is deterministic: fixed hash salt, no date.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trueup.errors import MissingExtraError
from trueup.report.data import CalibrationResult, FloatArray, Results, ScenarioResult, plain
from trueup.report.palette import CHROME, STYLES, Style, style_of
from trueup.report.reading import amount

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError as error:
    raise MissingExtraError("The report", "report", error.name or "matplotlib") from error

__all__ = ["LOG_FROM_RATIO", "Panel", "figure_of", "panels_of", "svg_of", "write_figures"]

Kind = Literal["learning", "final", "reliability", "cost"]

LOG_FROM_RATIO = 20.0  # largest over smallest positive value from which a cost axis is logarithmic
# Inches: width and height of a panel, and its margins left, right, top, bottom. Set by hand, because matplotlib's
# automatic layout costs ten times the drawing, and because panels of one kind should line up.
_LAYOUT: dict[str, tuple[float, float, float, float, float, float]] = {
    "learning": (4.2, 3.05, 0.55, 1.35, 0.42, 0.5),
    "final": (4.2, 2.7, 1.35, 1.15, 0.36, 0.5),
    "cost": (4.2, 2.7, 1.35, 0.8, 0.36, 0.5),
    "reliability": (4.2, 3.6, 0.6, 0.2, 0.36, 0.78),
}
_KEY_HEIGHT = 0.7  # inches below the panels for a figure's common key
_COSTS = {"gold_queries": "gold queries", "sandbox_seconds": "sandbox seconds"}  # per run
_INK, _MUTED, _GRID, _PAPER = (CHROME[name][0] for name in ("ink", "muted", "grid", "paper"))
_RC: Any = {
    "svg.hashsalt": "trueup",
    "svg.fonttype": "none",
    "text.parse_math": False,  # names are shown as they are, also those with dollar signs
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.facecolor": _PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "text.color": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "figure.facecolor": _PAPER,
    "savefig.facecolor": _PAPER,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Panel:
    """One set of axes: which figure it belongs to, what it says in words, and how it is drawn."""

    kind: Kind
    scenario: str
    title: str
    alt: str
    draw: Callable[[Any], None]


def panels_of(results: Results, alt: Callable[[str, str, str], str]) -> list[Panel]:
    """Every panel of the report. `alt(kind, scenario, what)` gives the text for those who cannot see it."""
    panels = []
    for s in results.scenarios:
        limits = _reward_limits(s)
        panels += [
            Panel(
                kind="learning",
                scenario=s.key,
                title=f"{s.label}: {what} reward",
                alt=alt("learning", s.key, what),
                draw=_bind(draw_learning, s, what, limits),
            )
            for what in ("gold", "proxy")
        ]
        panels.append(Panel("final", s.key, s.label, alt("final", s.key, ""), _bind(draw_final, s)))
        panels += [
            Panel("cost", s.key, f"{s.label}: {what}", alt("cost", s.key, name), _bind(draw_cost, s, name))
            for name, what in _COSTS.items()
            if any(getattr(arm, name) is not None for arm in s.arms)
        ]
    panels += [
        Panel("reliability", c.key, c.label, alt("reliability", c.key, ""), _bind(draw_reliability, c))
        for c in results.calibrations
    ]
    return panels


def _bind(function: Callable[..., None], *args: Any) -> Callable[[Any], None]:
    return lambda ax: function(ax, *args)


# -- panels -------------------------------------------------------------------------------------------------------


def draw_learning(
    ax: Any, scenario: ScenarioResult, what: Literal["gold", "proxy"], limits: tuple[float, float]
) -> None:
    """One line per arm with a band of one standard error, named where it ends."""
    ends = []
    for arm in scenario.arms:
        mean, se = getattr(arm.curve, f"{what}_mean"), getattr(arm.curve, f"{what}_se")
        step, style = arm.curve.step, style_of(arm.key)
        seen = np.flatnonzero(np.isfinite(mean) & np.isfinite(step))
        if not seen.size:
            continue
        every = max(1, mean.size // 6)
        ax.plot(
            step, mean, color=style.light, linestyle=style.dash, linewidth=style.width,
            marker=style.marker, markersize=3.6, markevery=(every // 2, every), markeredgewidth=0,
            label=arm.label, gid=_gid(arm.key, "mean"),
        )  # fmt: skip
        _band(ax, step, mean, se, style.light, arm.key)
        ends.append((float(mean[seen[-1]]), float(step[seen[-1]]), arm.label, style))
    ax.set_ylim(*limits)
    ax.set_xlabel("training step")
    ax.set_ylabel(f"{what} reward")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if not ends:
        _say(ax, "no values")
        return
    steps = np.concatenate([arm.curve.step[np.isfinite(arm.curve.step)] for arm in scenario.arms])
    ax.set_xlim(steps.min(), max(steps.max(), steps.min() + 1))
    _name_ends(ax, ends, limits)


def draw_final(ax: Any, scenario: ScenarioResult) -> None:
    """A bar per arm with its standard error and its value; a dash where there is none."""
    values = [arm.final_mean for arm in scenario.arms]
    errors = [arm.final_se or 0.0 for arm in scenario.arms]
    texts = [amount(arm.final_mean, arm.final_se) for arm in scenario.arms]
    reach = [v + e for v, e in zip(values, errors, strict=True) if v is not None]
    low = min([0.0, *[v for v in values if v is not None]])
    _bars(ax, scenario, values, texts, errors)
    ax.set_xlim(low, max([1.0, *reach]))
    ax.set_xlabel("final gold reward")


def draw_cost(ax: Any, scenario: ScenarioResult, name: str) -> None:
    """What gold cost: bars from zero, or points on a logarithmic axis where the arms are far apart."""
    values = [getattr(arm, name) for arm in scenario.arms]
    seconds = name == "sandbox_seconds"
    texts = ["–" if v is None else _seconds(v) if seconds else f"{v:,.0f}" for v in values]
    positive = [v for v in values if v]
    label = "seconds per run" if seconds else "gold queries per run"
    if positive and max(positive) / min(positive) >= LOG_FROM_RATIO:
        low = 10 ** math.floor(math.log10(min(positive)) - 0.05)
        _points(ax, scenario, values, texts, low)
        ax.set_xscale("log")
        ax.set_xlim(low, max(positive) * 1.15)
        label += " (logarithmic)"
    else:
        _bars(ax, scenario, values, texts, None)
        ax.set_xlim(0, max([*positive, 0.0]) or 1.0)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))
    ax.set_xlabel(label)


def draw_reliability(ax: Any, calibration: CalibrationResult) -> None:
    """Mean gold per bin against the mean score of the bin, raw and calibrated; the diagonal is honesty."""
    c = calibration
    ax.plot([0, 1], [0, 1], color=_MUTED, linewidth=1, linestyle=(0, (3, 3)), label="a score that means gold")
    largest = float(np.nanmax(c.n)) if np.isfinite(c.n).any() else 1.0
    for x, arm, label in (
        (c.proxy_mean, "proxy", "raw proxy"),
        (c.calibrated_mean, "corrected", "calibrated"),
    ):
        style = style_of(arm)
        order = np.argsort(x, kind="stable")
        xs, ys, se = x[order], c.gold_mean[order], c.gold_se[order]
        ax.plot(xs, ys, color=style.light, linewidth=1.4, linestyle=style.dash, gid=_gid(arm, "mean"))
        share = np.where(np.isfinite(c.n[order]), c.n[order], 0.0) / largest
        ax.scatter(
            xs, ys, s=10 + 60 * np.sqrt(share), color=style.light, marker=style.marker,
            linewidth=0, zorder=3, label=label,
        )  # fmt: skip
        _band(ax, xs, ys, se, style.light, arm)
    both = np.concatenate([c.proxy_mean, c.calibrated_mean, c.gold_mean])
    low, high = _round_out(both)
    ax.set_xlim(low - 0.02, high + 0.02)
    ax.set_ylim(low - 0.02, high + 0.02)
    ax.set_xlabel("score said")
    ax.set_ylabel("gold measured")
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.46, -0.15), ncols=3, frameon=False, fontsize=8, handlelength=1.8
    )


def _gid(arm: str, part: str) -> str:
    """A name for an artist, by which it can be found; it becomes an id in the SVG, so it is made of safe characters."""
    return f"{arm if arm in STYLES else f'other{zlib.crc32(arm.encode()):x}'}-{part}"


# -- pieces -------------------------------------------------------------------------------------------------------


def _band(ax: Any, x: FloatArray, mean: FloatArray, se: FloatArray, colour: str, key: str) -> None:
    known = np.isfinite(mean) & np.isfinite(se) & np.isfinite(x)
    if known.any():
        ax.fill_between(
            x, mean - se, mean + se, where=known, color=colour, alpha=0.18, linewidth=0, gid=_gid(key, "band")
        )


def _name_ends(ax: Any, ends: list[tuple[float, float, str, Style]], limits: tuple[float, float]) -> None:
    """Write each line's name to the right of its end, moved apart where ends are close."""
    low, high = limits
    gap = 0.078 * (high - low)
    ends = sorted(ends, key=lambda end: end[0])
    places = spread([y for y, *_ in ends], gap, low, high)
    across = ax.get_yaxis_transform()  # x in axes fractions, y in data
    left, right = ax.get_xlim()
    for (y, x, label, style), place in zip(ends, places, strict=True):
        start = (x - left) / (right - left)
        ax.plot(
            [start, 1.055], [y, place], color=style.light, linewidth=0.8, marker=style.marker, markersize=3.6,
            markevery=[1], markeredgewidth=0, transform=across, clip_on=False,
        )  # fmt: skip
        ax.text(1.085, place, plain(label, 20), fontsize=8, va="center", transform=across)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for sorted labels: at least `gap` apart, inside [low, high] if they fit, near where they belong."""
    places: list[float] = []
    for y in wanted:
        places.append(max(y, places[-1] + gap) if places else max(y, low))
    ceiling = high
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return places


def _rows(ax: Any, scenario: ScenarioResult) -> range:
    rows = range(len(scenario.arms))
    ax.set_yticks(list(rows), [plain(arm.label, 20) for arm in scenario.arms], fontsize=8.5)
    ax.set_ylim(len(scenario.arms) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    return rows


def _bars(
    ax: Any,
    scenario: ScenarioResult,
    values: Sequence[float | None],
    texts: Sequence[str],
    errors: Sequence[float] | None,
) -> None:
    for row in _rows(ax, scenario):
        value, arm = values[row], scenario.arms[row]
        end = 0.0
        if value is not None:
            error = errors[row] if errors else 0.0
            ax.barh(row, value, height=0.62, color=style_of(arm.key).light, gid=_gid(arm.key, "bar"))
            if error:
                ax.errorbar(value, row, xerr=error, color=_INK, linewidth=1.2, capsize=2.5, capthick=1.2)
            end = max(value + error, 0.0)
        _value(ax, end, row, texts[row])


def _points(
    ax: Any, scenario: ScenarioResult, values: Sequence[float | None], texts: Sequence[str], low: float
) -> None:
    """Points for a logarithmic axis, on which a bar would have no start; zero is written, not placed."""
    for row in _rows(ax, scenario):
        value, style = values[row], style_of(scenario.arms[row].key)
        if value:
            ax.plot([low, value], [row, row], color=_GRID, linewidth=1, zorder=1)
            ax.plot([value], [row], style.marker, color=style.light, markersize=7, markeredgewidth=0,
                    gid=_gid(scenario.arms[row].key, "point"))  # fmt: skip
        _value(ax, value or low, row, texts[row])


def _value(ax: Any, x: float, row: int, text: str) -> None:
    ax.annotate(
        text, xy=(x, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8, color=_INK,
        annotation_clip=False,
    )  # fmt: skip


def _say(ax: Any, text: str) -> None:
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=_MUTED)


def _reward_limits(scenario: ScenarioResult) -> tuple[float, float]:
    """One scale for a scenario's gold and proxy panels, so that the two can be compared by eye."""
    curves = [arm.curve for arm in scenario.arms]
    values = [c.gold_mean for c in curves] + [c.proxy_mean for c in curves]
    low, high = _round_out(np.concatenate(values))
    return low - 0.03 * (high - low), high + 0.03 * (high - low)  # a line at the very end stays whole


def _round_out(values: FloatArray) -> tuple[float, float]:
    """The range of the values, outwards to tenths."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = math.floor(10 * finite.min() + 1e-9) / 10, math.ceil(10 * finite.max() - 1e-9) / 10
    return low, high if high > low else low + 0.1


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


# -- files --------------------------------------------------------------------------------------------------------


@contextmanager
def _drawing(panels: Sequence[Panel], columns: int, key_height: float = 0.0) -> Iterator[Any]:
    """A figure with the given panels of one kind, in this module's style."""
    rows = -(-len(panels) // columns)
    width, height, left, right, top, bottom = _LAYOUT[panels[0].kind]
    whole = (width * columns, height * rows + key_height)
    with mpl.rc_context(_RC):
        figure = Figure(figsize=whole)
        for place, panel in enumerate(panels):
            row, column = divmod(place, columns)
            x, y = column * width + left, key_height + (rows - 1 - row) * height + bottom
            ax = figure.add_axes(
                (
                    x / whole[0],
                    y / whole[1],
                    (width - left - right) / whole[0],
                    (height - top - bottom) / whole[1],
                )
            )
            panel.draw(ax)
            ax.set_title(plain(panel.title, 56), x=(0.1 - left) / (width - left - right), pad=9)
        yield figure


def figure_of(panels: Sequence[Panel], columns: int = 1) -> Any:
    """The panels as a matplotlib Figure (for notebooks and tests)."""
    with _drawing(panels, columns) as figure:
        return figure


def svg_of(panel: Panel) -> str:
    """One panel as an SVG document, the same text every time."""
    with _drawing([panel], 1) as figure:
        return _svg(figure)


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return out.getvalue()


def write_figures(panels: Sequence[Panel], folder: Path) -> list[Path]:
    """Write each kind's panels together, as `<kind>.svg` and `<kind>.png`, and say which files these are."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in dict.fromkeys(panel.kind for panel in panels):
        chosen = [panel for panel in panels if panel.kind == kind]
        has_key = kind == "learning"
        with _drawing(chosen, min(2, len(chosen)), _KEY_HEIGHT if has_key else 0.0) as figure:
            if has_key:
                _add_key(figure)
            for artist in figure.findobj():
                artist.set_gid(None)  # the same names in every panel would be the same ids
            svg, png = folder / f"{kind}.svg", folder / f"{kind}.png"
            svg.write_text(_svg(figure), encoding="utf-8")
            figure.savefig(png, dpi=150, metadata={"Software": None})
        written += [svg, png]
    return written


def _add_key(figure: Any) -> None:
    """One legend for all panels, below them."""
    arms = {line.get_label(): line for ax in figure.axes for line in ax.get_lines()}
    handles = [
        Line2D(
            [],
            [],
            color=line.get_color(),
            linestyle=style_of(line.get_gid().removesuffix("-mean")).dash,
            linewidth=line.get_linewidth(),
            marker=line.get_marker(),
            markersize=4,
            markeredgewidth=0,
            label=label,
        )
        for label, line in arms.items()
        if (line.get_gid() or "").endswith("-mean")
    ]
    if handles:
        figure.legend(handles=handles, loc="lower center", ncols=4, frameon=False, handlelength=3.2)
