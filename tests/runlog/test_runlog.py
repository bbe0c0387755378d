"""What goes into the log comes out of it, and unknown stays unknown."""

from __future__ import annotations

import csv
import json
import sqlite3

import numpy as np
import pytest

from tests.runlog.records import make_record
from trueup.errors import ConfigError, DataError, StateError
from trueup.runlog import LOG_NAME, SCHEMA_VERSION, RunLog, RunReader, export_pairs
from trueup.runlog.reader import PAIR_COLUMNS
from trueup.runlog.schema import connect, migrate


def _log(folder, steps=3, **settings):
    records = [make_record(step) for step in range(steps)]
    with RunLog(folder, config={"lr": 1e-5}, seeds={"anchors": 7}, **settings) as log:
        for record in records:
            log.append(record, costs={"sandbox_s": 1.5})
    return records


def test_pairs_come_back_as_they_were_with_null_and_reason_for_unscored(tmp_path):
    records = _log(tmp_path)
    with RunReader(tmp_path) as reader:
        rows = [dict(zip(PAIR_COLUMNS, row, strict=True)) for row in reader.pairs()]
        run = reader.run()
    assert len(rows) == sum(int(r.anchored.sum()) for r in records)
    for row in rows:
        record, i = records[row["step"]], row["rollout"]
        assert row["group"] == record.group_ids[record.group[i]]
        assert row["family"] == record.families[record.family[i]]
        for name in ("proxy", "gold", "calibrated", "propensity", "reward", "advantage"):
            value = getattr(record, name)[i]
            assert row[name] == (None if np.isnan(value) else value)
        assert row["proxy_reason"] == ("timeout_infrastructure" if np.isnan(record.proxy[i]) else None)
        assert row["gold_reason"] == ("sandbox_unavailable" if np.isnan(record.gold[i]) else None)
    assert any(row["gold"] is None for row in rows)
    assert run["config"] == {"lr": 1e-5}
    assert run["seeds"] == {"anchors": 7}
    assert set(run["versions"]) == {"trueup", "python", "numpy", "sqlite"}


def test_all_rollouts_are_kept_on_request_and_those_without_gold_say_why(tmp_path):
    records = _log(tmp_path, rollouts="all")
    with RunReader(tmp_path) as reader:
        rows = [dict(zip(PAIR_COLUMNS, row, strict=True)) for row in reader.pairs()]
    assert len(rows) == sum(r.proxy.size for r in records)
    assert {r["gold_reason"] for r in rows if r["gold"] is None} == {"not_selected", "sandbox_unavailable"}


def test_the_schema_itself_refuses_a_missing_score_without_a_reason(tmp_path):
    _log(tmp_path, steps=1)
    db = sqlite3.connect(tmp_path / LOG_NAME)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        db.execute("INSERT INTO pair (seq, family, group_id, rollout, proxy) VALUES (1, 1, 'g', 0, 0.5)")
    db.close()


def test_figures_by_family_equal_those_of_the_records(tmp_path):
    records = _log(tmp_path, steps=6)
    with RunReader(tmp_path) as reader:
        series = reader.family_series("plans")
        totals = {row["family"]: row for row in reader.family_totals()}
        failures = {(f["family"], f["scorer"], f["reason"]): f["n"] for f in reader.failures()}
        costs = reader.costs()
    for row, record in zip(series, records, strict=True):
        here = record.family == 1
        gold = record.gold[here]
        residual = (record.gold - record.calibrated)[here]
        assert row["proxy_mean"] == pytest.approx(np.nanmean(record.proxy[here]))
        assert row["gold_mean"] == pytest.approx(np.nanmean(gold))
        assert row["residual_mean"] == pytest.approx(np.nanmean(residual))
        assert row["residual_square_mean"] == pytest.approx(np.nanmean(residual**2))
    assert totals["code"]["n_rollouts"] == sum(int((r.family == 0).sum()) for r in records)
    assert totals["code"]["newest_anchor_step"] == 5
    lost = sum(int(np.isnan(r.proxy[r.family == 0]).sum()) for r in records)
    assert failures.get(("code", "proxy", "timeout_infrastructure"), 0) == lost
    assert costs == {"sandbox_s": 9.0}
    assert lost > 0


def test_gold_means_undo_unequal_chances_of_being_an_anchor(tmp_path):
    record = make_record(0, n_groups=1, group_size=4, families=("code",))
    change = {
        "gold": np.array([0.0, 1.0, 1.0, np.nan]),
        "gold_code": np.array([0, 0, 0, 7], np.int8),
        "propensity": np.array([0.5, 1.0, 1.0, 1.0]),
        "anchored": np.array([True, True, True, False]),
    }
    record = type(record)(**{f: getattr(record, f) for f in record.__slots__} | change)
    with RunLog(tmp_path) as log:
        log.append(record)
    with RunReader(tmp_path) as reader:
        assert reader.family_series()[0]["gold_mean"] == pytest.approx(0.5)  # (2·0 + 1 + 1) / (2 + 1 + 1)


def test_a_resumed_run_supersedes_the_steps_it_goes_back_behind_and_deletes_nothing(tmp_path):
    _log(tmp_path, steps=5)
    with RunLog(tmp_path, config={"lr": 99}) as log:
        assert log.last_step == 4
        log.append(make_record(2, seed=50))
        log.append(make_record(3, seed=51))
        assert log.last_step == 3
    with RunReader(tmp_path) as reader:
        assert [row["step"] for row in reader.steps()] == [0, 1, 2, 3]
        rows = [dict(zip(PAIR_COLUMNS, row, strict=True)) for row in reader.pairs()]
        assert {r["step"] for r in rows} == {0, 1, 2, 3}
        expected = make_record(2, seed=50)
        got = [r["gold"] for r in rows if r["step"] == 2]
        assert got == [None if np.isnan(v) else v for v in expected.gold[expected.anchored]]
        assert reader.run()["config"] == {"lr": 1e-5}
        assert reader.costs() == {"sandbox_s": 7.5}  # what was run twice was paid for
    db = sqlite3.connect(tmp_path / LOG_NAME)
    assert db.execute("SELECT COUNT(*) FROM step").fetchone() == (7,)
    db.close()


def test_the_worst_disagreements_come_with_their_texts(tmp_path):
    record = make_record(0, n_groups=10, group_size=8)
    texts = {i: (f"prompt {i}", f"<b>completion {i}</b>") for i in range(80)}
    with RunLog(tmp_path) as log:
        log.append(record, texts=texts)
    with RunReader(tmp_path) as reader:
        worst = reader.worst_pairs(5)
    gap = np.abs(record.gold - record.calibrated)
    expected = np.sort(gap[~np.isnan(gap)])[::-1][:5]
    assert [abs(w["gold"] - w["calibrated"]) for w in worst] == pytest.approx(expected)
    for w in worst:
        assert (w["prompt"], w["completion"]) == texts[w["rollout"]]


def test_nan_in_metrics_and_refits_becomes_null(tmp_path):
    _log(tmp_path, steps=1)
    with RunReader(tmp_path) as reader:
        row = reader.steps()[0]
        assert reader.steps(since=0) == []
    assert row["metrics"] == {"anchor_weight": 1.0, "calibration/bias": None}
    assert row["refit"] == {"n_pairs": 3, "gain": None}
    assert row["notes"] == ["a decision"]


def test_a_log_of_the_first_version_is_read_without_being_changed_and_migrated_when_written(tmp_path):
    db = connect(tmp_path, read_only=False)
    migrate(db, to=1)
    db.execute("INSERT INTO family VALUES (1, 'old')")
    values = "(1, 0, 0.0, 'corrected', 'rollout', 1, 1, 1, .1, .1, 1, '{}', '[]', NULL)"
    db.execute(f"INSERT INTO step VALUES {values}")

    db.execute("INSERT INTO pair VALUES (1, 1, 1, 'g', 0, .5, NULL, .5, 1.0, NULL, .1, .5, 0.0)")
    db.close()
    with RunReader(tmp_path) as reader:
        assert reader.worst_pairs(1)[0]["gold"] == 1.0
        assert reader.costs() == {}
    check = sqlite3.connect(tmp_path / LOG_NAME)
    assert check.execute("PRAGMA user_version").fetchone() == (1,)
    check.close()
    with RunLog(tmp_path) as log:
        log.append(make_record(1), costs={"tokens": 10})
    check = sqlite3.connect(tmp_path / LOG_NAME)
    assert check.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    check.close()
    with RunReader(tmp_path) as reader:
        assert [row["step"] for row in reader.steps()] == [0, 1]


def test_files_that_are_no_run_log_or_a_newer_one_are_refused(tmp_path):
    with pytest.raises(DataError, match="run folder"):
        RunReader(tmp_path)
    (tmp_path / LOG_NAME).write_bytes(b"not a database at all, but long enough to be read as a header...")
    with pytest.raises(DataError, match="could not be read"):
        RunReader(tmp_path)
    with pytest.raises(DataError, match="could not be read"):
        RunLog(tmp_path)
    newer = tmp_path / "newer"
    _log(newer, steps=1)
    db = sqlite3.connect(newer / LOG_NAME)
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(DataError, match="Upgrade"):
        RunReader(newer)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / LOG_NAME).touch()
    with pytest.raises(DataError, match="empty"):
        RunReader(empty)


def test_misuse_is_told(tmp_path):
    log = RunLog(tmp_path)
    with pytest.raises(DataError, match="cost"):
        log.append(make_record(0), costs={"gpu_s": float("nan")})
    log.close()
    log.close()
    with pytest.raises(StateError, match="closed"):
        log.append(make_record(0))
    with pytest.raises(ConfigError, match="rollouts"):
        RunLog(tmp_path, rollouts="some")


def test_the_three_exports_hold_the_same_rows(tmp_path):
    run = tmp_path / "run"
    _log(run)
    counts = {export_pairs(run, tmp_path / f"pairs.{f}") for f in ("jsonl", "csv", "parquet")}
    assert len(counts) == 1
    lines = (tmp_path / "pairs.jsonl").read_text().splitlines()
    assert "NaN" not in "".join(lines)
    from_jsonl = [json.loads(line) for line in lines]
    with (tmp_path / "pairs.csv").open() as file:
        from_csv = list(csv.DictReader(file))
    pq = pytest.importorskip("pyarrow.parquet")
    from_parquet = pq.read_table(tmp_path / "pairs.parquet").to_pylist()
    assert from_parquet == from_jsonl
    for a, b in zip(from_csv, from_jsonl, strict=True):
        assert a["gold"] == ("" if b["gold"] is None else repr(b["gold"]))
        assert a["gold_reason"] == (b["gold_reason"] or "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pairs.csv", "pairs.jsonl", "pairs.parquet", "run"]


def test_an_unknown_format_and_a_failed_export_leave_no_file(tmp_path):
    _log(tmp_path / "run", steps=1)
    with pytest.raises(ConfigError, match="format"):
        export_pairs(tmp_path / "run", tmp_path / "pairs.xlsx")
    with pytest.raises(DataError):
        export_pairs(tmp_path / "nowhere", tmp_path / "pairs.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
