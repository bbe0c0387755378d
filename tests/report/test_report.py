"""The report: what is drawn is what was measured, gaps stay gaps, and the page is one safe file."""

import copy
import html.parser
import itertools
import math
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from trueup.errors import DataError
from trueup.report import write_report
from trueup.report.data import ARM_LABELS, SCENARIO_LABELS, read_results
from trueup.report.palette import CHROME, OTHER, STYLES
from trueup.report.reading import alt_text, calibration_error, read_calibration, read_scenario

pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
pytest.importorskip("jinja2", reason="the extra 'report' is not installed")

from trueup.report.figures import LOG_FROM_RATIO, figure_of, panels_of, spread, svg_of
from trueup.report.page import inline_svg

FINAL = {
    "monotone": (0.999, 0.991, 0.985, 0.992, 0.996, 0.989, 0.993),
    "hackable": (0.999, 0.154, 0.978, 0.912, 0.993, 0.984, 0.941),
    "contextual_benign": (0.909, 0.899, 0.868, 0.899, 0.874, 0.908, 0.890),
    "contextual_exploit": (0.909, 0.055, 0.868, 0.633, 0.872, 0.902, 0.834),
}


def synthetic(n_steps=20):
    """Results of the right shape and plausible size; made up, and for these tests only."""
    rng = np.random.default_rng(0)
    step = np.arange(n_steps + 1)
    rise = 1 - np.exp(-step / 5)
    scenarios = {}
    for scenario, finals in FINAL.items():
        scenarios[scenario] = {}
        for arm, final in zip(ARM_LABELS, finals, strict=True):
            gold = 0.5 + (final - 0.5) * rise
            queries = {"gold": 4800, "proxy": 0}.get(arm, 480)
            scenarios[scenario][arm] = {
                "final_gold_reward": {"mean": final, "se": 0.004},
                "gold_queries": queries,
                "steps_to_90": None if final < 0.8 else 7,
                "auc": float(gold.mean()),
                "learning_rate": 2.0,
                "sandbox_seconds": queries * 0.07 if scenario in ("monotone", "hackable") else None,
                "curve": {
                    "step": step.tolist(),
                    "gold_mean": gold.tolist(),
                    "gold_se": rng.uniform(0.002, 0.02, step.size).tolist(),
                    "proxy_mean": (0.6 + 0.3 * rise).tolist(),
                    "proxy_se": rng.uniform(0.002, 0.02, step.size).tolist(),
                },
            }
    x = np.linspace(0.05, 0.95, 10)
    bins = {
        "bins": x.tolist(),
        "proxy_mean": x.tolist(),
        "calibrated_mean": (x**2 + 0.01).tolist(),
        "gold_mean": (x**2).tolist(),
        "gold_se": [0.01] * 10,
        "n": [50 * (k + 1) for k in range(10)],
    }
    return {
        "scenarios": scenarios,
        "calibration": {"monotone": bins, "hackable": copy.deepcopy(bins)},
        "learning_rates": {s: {a: {"1.0": 0.9, "2.0": 0.95} for a in ARM_LABELS} for s in FINAL},
        "sandbox": {
            "backend": "bwrap",
            "n_programs": 2,
            "n_runs": 4,
            "seconds_total": 0.28,
            "seconds_per_run": 0.07,
            "programs": [
                {"name": "reference", "pass_rate": 1.0, "hacker": False, "monotone": 0.9, "hackable": 0.7},
                {"name": "certified", "pass_rate": 0.15, "hacker": True, "monotone": 0.4, "hackable": 0.95},
            ],
        },
        "config": {"n_seeds": 32, "n_steps": n_steps, "anchor_fraction": 0.1},
        "versions": {"trueup": "0.1.0", "numpy": "2.4.0"},
    }


def small(results):
    """The same with one scenario: what takes time is drawing."""
    results["scenarios"] = {"hackable": results["scenarios"]["hackable"]}
    results["calibration"] = {"hackable": results["calibration"]["hackable"]}
    return results


def no_alt(kind, scenario, what):
    return "alt"


def panels(results):
    return panels_of(read_results(results), no_alt)


def axes_of(panel):
    return figure_of([panel]).axes[0]


def by_gid(ax, gid):
    return [artist for artist in ax.get_children() if artist.get_gid() == gid]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    path = write_report(synthetic(), out)
    return path, path.read_text(encoding="utf-8")


# -- figures: what is drawn is what was measured --------------------------------------------------------------------


def test_every_curve_and_band_holds_the_results_numbers():
    results = synthetic()
    learning = [p for p in panels(results) if p.kind == "learning"]
    assert [(p.scenario, p.title.split()[-2]) for p in learning] == [
        (s, what) for s in FINAL for what in ("gold", "proxy")
    ]
    for panel in learning:
        what = panel.title.split()[-2]
        ax = axes_of(panel)
        for arm, row in results["scenarios"][panel.scenario].items():
            (line,) = by_gid(ax, f"{arm}-mean")
            np.testing.assert_array_equal(line.get_xdata(), row["curve"]["step"])
            np.testing.assert_array_equal(line.get_ydata(), row["curve"][f"{what}_mean"])
            (band,) = by_gid(ax, f"{arm}-band")
            mean, se = (np.array(row["curve"][f"{what}_{part}"]) for part in ("mean", "se"))
            (path,) = band.get_paths()
            edges = path.vertices[:, 1]
            assert edges.max() == pytest.approx((mean + se).max())
            assert edges.min() == pytest.approx((mean - se).min())


def test_every_bar_and_its_error_hold_the_results_numbers():
    results = synthetic()
    for panel in (p for p in panels(results) if p.kind == "final"):
        ax = axes_of(panel)
        spans = [c.get_segments()[0][:, 0] for c in ax.collections]
        for row, (arm, found) in enumerate(results["scenarios"][panel.scenario].items()):
            (bar,) = by_gid(ax, f"{arm}-bar")
            mean, se = found["final_gold_reward"]["mean"], found["final_gold_reward"]["se"]
            assert bar.get_width() == pytest.approx(mean)
            assert bar.get_x() == 0  # a bar that does not start at zero lies about its length
            np.testing.assert_allclose(spans[row], [mean - se, mean + se])


def test_the_reliability_plot_holds_both_curves_and_the_diagonal():
    results = synthetic()
    bins = results["calibration"]["hackable"]
    ax = axes_of(next(p for p in panels(results) if p.kind == "reliability" and p.scenario == "hackable"))
    for gid, x in (("proxy-mean", "proxy_mean"), ("corrected-mean", "calibrated_mean")):
        (line,) = by_gid(ax, gid)
        np.testing.assert_array_equal(line.get_xdata(), bins[x])
        np.testing.assert_array_equal(line.get_ydata(), bins["gold_mean"])
    assert any(list(line.get_xdata()) == list(line.get_ydata()) == [0, 1] for line in ax.get_lines())
    assert len(by_gid(ax, "proxy-band")) == len(by_gid(ax, "corrected-band")) == 1


def test_costs_within_reach_are_bars_and_a_wide_range_is_logarithmic():
    results = synthetic()
    cost = [p for p in panels(results) if p.kind == "cost" and p.scenario == "monotone"]
    assert [p.title.split(": ")[1] for p in cost] == ["gold queries", "sandbox seconds"]
    ax = axes_of(cost[0])
    assert ax.get_xscale() == "linear"
    assert by_gid(ax, "gold-bar")[0].get_width() == 4800
    assert by_gid(ax, "proxy-bar")[0].get_width() == 0
    results["scenarios"]["monotone"]["gold"]["gold_queries"] = 480 * LOG_FROM_RATIO
    ax = axes_of(next(p for p in panels(results) if p.kind == "cost"))
    assert ax.get_xscale() == "log"
    assert by_gid(ax, "gold-point")[0].get_xdata()[0] == 480 * LOG_FROM_RATIO
    assert not by_gid(ax, "proxy-point")  # zero has no place on a logarithmic axis; it is written
    assert "0" in [text.get_text() for text in ax.texts]


def test_where_nothing_runs_in_a_sandbox_there_is_no_panel_of_seconds():
    titles = [p.title for p in panels(synthetic()) if p.kind == "cost" and p.scenario == "contextual_exploit"]
    assert titles == ["Contextual task, exploitable proxy: gold queries"]


# -- unknown is never zero ------------------------------------------------------------------------------------------


def with_gaps():
    results = synthetic()
    arm = results["scenarios"]["hackable"]["wmrl"]
    arm["final_gold_reward"] = {"mean": None, "se": None}
    arm["gold_queries"] = arm["auc"] = arm["sandbox_seconds"] = arm["learning_rate"] = None
    arm["curve"]["gold_mean"][5:8] = [None, float("nan"), None]
    arm["curve"]["gold_se"] = [None] * 21
    results["calibration"]["hackable"]["gold_mean"][3] = None
    return results


def test_a_missing_value_is_a_gap_in_the_curve_and_has_no_bar():
    chosen = {p.kind: p for p in panels(with_gaps()) if p.scenario == "hackable" and "proxy" not in p.title}
    ax = axes_of(chosen["learning"])
    (line,) = by_gid(ax, "wmrl-mean")
    assert np.flatnonzero(np.isnan(line.get_ydata())).tolist() == [5, 6, 7]
    assert not by_gid(ax, "wmrl-band")
    ax = axes_of(chosen["final"])
    assert not by_gid(ax, "wmrl-bar")
    assert [text.get_text() for text in ax.texts][3] == "–"


def test_a_missing_value_is_a_dash_in_the_table_and_is_not_read_as_a_number(tmp_path):
    page = write_report(small(with_gaps()), tmp_path).read_text(encoding="utf-8")
    rows = [row for row in re.findall(r"<tr>.*?</tr>", page) if "WMRL" in row and "</span>WMRL" in row]
    assert re.findall(r"<td>(.*?)</td>", rows[0]) == ["–"] * 2 + ["7"] + ["–"] * 3
    hackable = next(s for s in read_results(with_gaps()).scenarios if s.key == "hackable")
    assert not any("WMRL" in sentence for sentence in read_scenario(hackable))


def test_results_without_anything_scored_still_make_a_page(tmp_path):
    empty = {"scenarios": {"monotone": {"gold": {"curve": None}}}, "calibration": {}}
    page = write_report(empty, tmp_path).read_text(encoding="utf-8")
    assert "Too little was scored here" in page


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("scenarios",), {}, "at least one scenario"),
        (("scenarios", "monotone"), [], "scenarios.monotone"),
        (("scenarios", "monotone", "gold", "auc"), "high", "scenarios.monotone.gold.auc"),
        (("scenarios", "monotone", "gold", "curve", "gold_mean"), [0.1], "curve.gold_mean"),
        (("calibration", "monotone", "n"), 7, "calibration.monotone.n"),
    ],
)
def test_results_that_cannot_be_read_are_refused_by_name_and_nothing_is_written(path, value, named, tmp_path):
    results = synthetic()
    place = results
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(DataError, match=re.escape(named)):
        write_report(results, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- the reading ----------------------------------------------------------------------------------------------------


def reading(results, scenario):
    return " ".join(read_scenario(next(s for s in read_results(results).scenarios if s.key == scenario)))


def test_the_reading_says_when_the_proxy_was_pleased_and_when_not():
    assert "learned is to please it" in reading(synthetic(), "hackable")
    assert "learned is to please it" not in reading(synthetic(), "monotone")


def test_a_difference_within_two_standard_errors_is_called_noise():
    results = synthetic()
    wmrl = results["scenarios"]["contextual_exploit"]["wmrl"]["final_gold_reward"]
    assert "is above WMRL" in reading(results, "contextual_exploit")
    wmrl["mean"] = 0.902 - 2 * math.hypot(0.004, 0.004) + 1e-6
    assert "is within noise of WMRL" in reading(results, "contextual_exploit")
    wmrl["mean"] = 0.95
    assert "is below WMRL" in reading(results, "contextual_exploit")


def test_the_calibration_error_weights_bins_by_their_rollouts():
    results = synthetic()
    bins = results["calibration"]["monotone"]
    c = read_results(results).calibrations[0]
    expected = np.sqrt(
        np.average(np.square(np.subtract(bins["proxy_mean"], bins["gold_mean"])), weights=bins["n"])
    )
    assert calibration_error(c.proxy_mean, c) == pytest.approx(expected)
    assert calibration_error(c.calibrated_mean, c) == pytest.approx(0.01)
    assert "no monotone map" not in read_calibration(c)
    bins["gold_mean"][9] = bins["gold_mean"][8] - 0.05
    assert "no monotone map" in read_calibration(read_results(results).calibrations[0])


def test_alt_texts_hold_the_numbers():
    results = synthetic()
    read = read_results(results)
    last = results["scenarios"]["hackable"]["proxy"]["curve"]["gold_mean"][-1]
    assert "WMRL 0.912\u00a0±\u00a00.004" in alt_text(read, "final", "hackable", "")
    assert f"proxy only {last:.3f}" in alt_text(read, "learning", "hackable", "gold")
    assert "all gold 4,800" in alt_text(read, "cost", "hackable", "gold_queries")


# -- the page -------------------------------------------------------------------------------------------------------


class _Page(html.parser.HTMLParser):
    """Tags and attributes of a page, its text outside of styles, and ids."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.ids, self.text, self.open = [], [], [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def test_the_page_asks_the_network_for_nothing_and_holds_no_script(report):
    page = _Page(report[1])
    assert "http://" not in report[1]
    assert "https://" not in report[1]
    assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & set(page.tags)
    assert not [a for a in page.attributes if a[1].startswith("on")]
    assert all(
        value.startswith("#") for _, name, value in page.attributes if name in ("href", "src", "xlink:href")
    )
    assert not re.findall(r"url\((?!#)", report[1])
    assert "@import" not in report[1]


def test_ids_are_unique_and_every_inner_link_has_its_target(report):
    page = _Page(report[1])
    assert len(page.ids) == len(set(page.ids))
    targets = [value[1:] for _, name, value in page.attributes if name == "href"]
    targets += re.findall(r"url\(#([^)]*)\)", report[1])
    assert targets
    assert set(targets) <= set(page.ids)


def test_every_figure_has_a_text_for_those_who_cannot_see_it(report):
    page = _Page(report[1])
    labels = [value for tag, name, value in page.attributes if tag == "figure" and name == "aria-label"]
    assert len(labels) == page.tags.count("figure") == len(panels(synthetic()))
    assert all(len(label) > 40 for label in labels)


def test_the_page_holds_table_config_versions_and_programs(report):
    text = _Page(report[1]).text
    for expected in (
        *SCENARIO_LABELS.values(),
        *ARM_LABELS.values(),
        "anchor_fraction",
        "2.4.0",
        "certified",
        "bwrap",
    ):
        assert expected in text


def test_dark_and_print_have_colours_of_their_own_and_no_drawn_colour_is_left_fixed(report):
    assert "@media (prefers-color-scheme: dark)" in report[1]
    assert "@media print" in report[1]
    body = report[1].split("</style>", 1)[1]
    left = set(re.findall(r": (#[0-9a-f]{6})", body))
    assert not left & {pair[0] for pair in CHROME.values()}
    assert not left & {style.light for style in (*STYLES.values(), OTHER)}


HOSTILE = "</svg><script>alert(1)</script>\"'&$\\frac{$\x00\x1b]]>{{ 7*7 }}"


def hostile():
    results = synthetic()
    arms = results["scenarios"]["hackable"]
    results["scenarios"] = {
        "hackable": {"gold": arms["gold"], HOSTILE: arms["wmrl"]},
        HOSTILE: {"gold": arms["gold"]},
    }
    results["calibration"] = {HOSTILE: results["calibration"]["hackable"]}
    results["learning_rates"] = {HOSTILE: {HOSTILE: {HOSTILE: 1.0}}}
    results["sandbox"]["programs"][0]["name"] = HOSTILE
    results["sandbox"]["backend"] = HOSTILE
    results["config"][HOSTILE] = HOSTILE
    results["config"]["n_seeds"] = HOSTILE
    results["versions"] = {HOSTILE: [HOSTILE]}
    return results


def test_hostile_strings_are_text_wherever_they_appear(tmp_path):
    page_text = write_report(hostile(), tmp_path).read_text(encoding="utf-8")
    page = _Page(page_text)
    assert "script" not in page.tags
    assert "<script" not in page_text
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert "{{ 7*7 }}" in page.text  # not evaluated by the template
    for svg in (tmp_path / "figures").glob("*.svg"):
        ids = [
            e.get("id") for e in ET.parse(svg).iter() if e.get("id")
        ]  # well-formed, whatever the names were
        assert len(ids) == len(set(ids))


# -- files ----------------------------------------------------------------------------------------------------------


def test_figures_are_written_as_svg_and_png(report):
    names = sorted(p.name for p in (report[0].parent / "figures").iterdir())
    assert names == sorted(
        f"{k}.{e}" for k in ("learning", "final", "reliability", "cost") for e in ("svg", "png")
    )
    for path in (report[0].parent / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_same_results_give_the_same_bytes_in_another_process(tmp_path):
    """Hash seeds differ between processes; ids in the SVG must not."""
    first, second = tmp_path / "first", tmp_path / "second"
    write_report(small(synthetic()), first)
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2]); from test_report import small, synthetic; "
        "from trueup.report import write_report; write_report(small(synthetic()), pathlib.Path(sys.argv[1]))"
    )
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", code, str(second), here], check=True, timeout=120)
    assert (first / "report.html").read_bytes() == (second / "report.html").read_bytes()
    for path in (first / "figures").glob("*.svg"):
        assert path.read_bytes() == (second / "figures" / path.name).read_bytes(), path.name


def test_an_svg_for_the_page_has_no_name_space_no_prologue_and_ids_of_its_own():
    document = svg_of(panels(synthetic())[0])
    element = inline_svg(document, "p7-")
    assert document.startswith("<?xml")
    assert element.startswith("<svg viewBox=")
    assert "xmlns" not in element
    assert "metadata" not in element
    ids = re.findall(r' id="([^"]*)"', element)
    assert ids
    assert all(i.startswith("p7-") for i in ids)


def test_labels_are_spread_in_order_and_stay_inside():
    places = spread([0.98, 0.985, 0.99, 0.99, 0.999], 0.08, 0.0, 1.0)
    assert places == sorted(places)
    assert min(np.diff(places)) == pytest.approx(0.08)
    assert max(places) <= 1.0
    assert spread([0.1, 0.5, 0.9], 0.08, 0.0, 1.0) == [0.1, 0.5, 0.9]  # nobody moves without need


def test_without_the_extra_the_error_names_it(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from trueup.report import write_report\n"
        "from trueup.errors import MissingExtraError\n"
        "try: write_report({'scenarios': {'a': {}}}, __import__('pathlib').Path(sys.argv[1]))\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert 'pip install "trueup[report]"' in done.stdout
    assert not (tmp_path / "out").exists()


# -- colours --------------------------------------------------------------------------------------------------------


def _linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def _contrast(a, b):
    high, low = sorted((float(_linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_every_colour_stands_out_from_the_paper(dark):
    """WCAG 2.2: 3:1 for graphics (1.4.11), 4.5:1 for text (1.4.3)."""
    paper = CHROME["paper"][dark]
    for style in (*STYLES.values(), OTHER):
        assert _contrast(style.dark if dark else style.light, paper) >= 3.0, style
    for name in ("ink", "muted"):
        assert _contrast(CHROME[name][dark], paper) >= 4.5


def test_no_two_arms_look_alike_in_colour_dash_and_marker():
    styles = [*STYLES.values(), OTHER]
    assert len({s.light for s in styles}) == len({s.dark for s in styles}) == len(styles)
    assert len({s.marker for s in styles}) == len(styles)


# Machado, Oliveira & Fernandes 2009 (IEEE TVCG 15(6)), severity 1, on linear RGB.
SEEN_BY = {
    "trichromat": np.eye(3),
    "protanope": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranope": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanope": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def _lab(linear):
    """CIE 1976 L*a*b* of linear sRGB, white point D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(linear, 0, 1) / np.array([0.95047, 1.0, 1.08883]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eye", SEEN_BY)
@pytest.mark.parametrize("dark", [False, True])
def test_arms_stay_apart_for_the_colour_blind(eye, dark):
    """ΔE of 12 and more: far over the 2.3 that can just be told apart."""
    colours = [_lab(SEEN_BY[eye] @ _linear(s.dark if dark else s.light)) for s in STYLES.values()]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(colours, 2)]
    assert min(distances) >= 12


# -- a real browser -------------------------------------------------------------------------------------------------


def test_the_page_renders_in_a_browser_without_a_network(report, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine")
    shot = tmp_path / "shot.png"
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--window-size=900,1200",
    ]
    subprocess.run(
        [
            browser,
            *flags,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={shot}",
            report[0].as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    image = pytest.importorskip("matplotlib.image").imread(shot)
    assert image.shape[:2] == (1200, 900)
    assert np.ptp(image[..., :3]) > 0.8  # ink on paper, not an empty page
    assert len(np.unique(image[..., :3].reshape(-1, 3), axis=0)) > 50
