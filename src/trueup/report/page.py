"""The page; the only module that imports jinja2.

Everything that comes from the results is escaped by jinja2. The one thing let through as markup is the SVG that this
package drew; it is cut down to what a page needs: no XML prologue, no name spaces, ids that are unique in the page, and
CSS variables in the place of colours, so that one drawing serves light, dark and print.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trueup.errors import MissingExtraError
from trueup.report.data import ARM_LABELS, SCENARIO_LABELS, Results
from trueup.report.palette import css_variables, style_of
from trueup.report.reading import amount, read_calibration, read_scenario

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
except ImportError as error:
    raise MissingExtraError("The report", "report", error.name or "jinja2") from error

__all__ = ["Picture", "inline_svg", "render_page"]

ABOUT_ARMS = {
    "gold": "gold for every rollout: the best that can be hoped for, at full price",
    "proxy": "no gold at all",
    "gold_budget": "trains on the anchored groups only and ignores the proxy: what any other arm has to beat",
    "wmrl": "the published method: a calibrated proxy, whole anchor groups weighted up",
    "control_variate": "whole anchor groups correct the proxy without bias",
    "corrected": "single anchored rollouts correct the proxy without bias: trueup's default",
    "mse": "shrinks the correction by its estimated error: some bias for less variance",
}
_KINDS = {
    "learning": (
        "Learning curves",
        "For each scenario the reward that counts, then what the proxy says of the same policies, on one scale. Where "
        "the second stays high while the first falls, the policy is learning to please the proxy. Bands: ± one "
        "standard error over seeds.",
    ),
    "final": ("Where it ends", "Gold reward of the final policy, mean over seeds ± one standard error."),
    "reliability": (
        "Does a score mean what it says?",
        "Each mark is a bin of raw proxy scores, larger where it holds more rollouts. On the dashed diagonal a score "
        "means gold. Bands: ± one standard error of mean gold.",
    ),
    "cost": (
        "What gold cost",
        "Gold queries per run, and the sandbox seconds that they stand for at the measured time per program run. "
        "Where nothing runs in a sandbox there are no seconds to show.",
    ),
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn panel on its way into the page."""

    kind: str
    title: str
    alt: str
    svg: str  # a whole SVG document, ours


def render_page(results: Results, pictures: Sequence[Picture]) -> str:
    """The whole page as text."""
    environment = Environment(
        loader=PackageLoader("trueup.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"amount": amount, "number": _number, "share": _share, "told": _told}
    arms = dict.fromkeys((arm.key, arm.label) for scenario in results.scenarios for arm in scenario.arms)
    shown: dict[str, list[dict[str, Any]]] = {}
    for number, picture in enumerate(pictures):
        svg = Markup(inline_svg(picture.svg, f"p{number}-"))  # drawn by us, its texts escaped by matplotlib
        shown.setdefault(picture.kind, []).append({"title": picture.title, "alt": picture.alt, "svg": svg})
    return environment.get_template("report.html").render(
        results=results,
        readings=[(scenario, read_scenario(scenario)) for scenario in results.scenarios],
        calibration_readings=[read_calibration(c) for c in results.calibrations],
        arms=[
            {"label": label, "style": style_of(key), "about": ABOUT_ARMS.get(key, ""), "dash": _dash(key)}
            for key, label in arms
        ],
        arm_labels=ARM_LABELS,
        scenario_labels=SCENARIO_LABELS,
        sections=[(kind, *_KINDS[kind], shown[kind]) for kind in _KINDS if kind in shown],
        light=css_variables(dark=False),
        dark=css_variables(dark=True),
    )


def inline_svg(document: str, prefix: str) -> str:
    """An SVG document by matplotlib as an element for inside the page; `prefix` keeps its ids its own."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    svg = f'<svg {box[0] if box else ""} aria-hidden="true" focusable="false">{rest}'
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'(?<=[ <])id="', f'id="{prefix}', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}", svg)
    svg = re.sub(r"(?s)<style[^>]*>.*?</style>", "", svg)  # one rule on line joins, which the page has too
    for name, colour in css_variables(dark=False).items():
        svg = svg.replace(f": {colour}", f": var(--{name})")
    return svg


def _dash(key: str) -> str:
    """The arm's dash pattern for the key of the page, in its strokes' width of 2."""
    pattern = style_of(key).dash[1]
    return " ".join(f"{2 * part:g}" for part in pattern) or "none"


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _share(value: Any, digits: int = 2) -> str:
    """A rate that a mapping holds under a key that may be absent."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.{digits}f}" if is_number and math.isfinite(value) else "–"


def _told(value: Any) -> str:
    """Any setting as text: what JSON would write, without quotes around plain strings."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_told(part)}" for key, part in value.items())
    return json.dumps(value, default=str)
