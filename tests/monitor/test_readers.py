"""Every kind of log is read to the same table, and every kind of wrong input has one clear outcome."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from tests.monitor.logs import columns_of, make_rows, write_csv, write_jsonl
from tests.runlog.records import make_record
from trueup.errors import DataError, MissingExtraError
from trueup.monitor import audit, build_table, load_table, table_from_records
from trueup.runlog import RunLog


def _same(a, b):
    assert a.families == b.families
    for name in ("family", "unit", "step", "proxy", "gold"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_jsonl_csv_and_parquet_give_the_same_table(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = make_rows(20)
    rows[3]["gold"] = None
    from_jsonl = load_table(write_jsonl(tmp_path / "log.jsonl", rows))
    pq.write_table(pa.table(columns_of(rows)), tmp_path / "log.parquet")
    _same(from_jsonl, load_table(write_csv(tmp_path / "log.csv", rows)))
    _same(from_jsonl, load_table(tmp_path / "log.parquet"))
    assert np.isnan(from_jsonl.gold).sum() == 1


def test_a_run_folder_and_its_records_give_the_same_anchors(tmp_path):
    records = [make_record(step) for step in range(5)]
    with RunLog(tmp_path, rollouts="all") as log:
        for record in records:
            log.append(record)
    from_run, from_memory = load_table(tmp_path), table_from_records(records)
    _same(from_run, from_memory)
    np.testing.assert_array_equal(from_run.calibrated, from_memory.calibrated)


def test_a_run_that_keeps_its_anchors_only_still_knows_how_many_rollouts_there_were(tmp_path):
    records = [make_record(step) for step in range(5)]
    with RunLog(tmp_path) as log:
        for record in records:
            log.append(record, costs={"sandbox_s": 2.0, "tokens": 10})
    cost = audit(load_table(tmp_path)).cost
    n_gold = sum(r.n_gold_queries for r in records)
    assert cost["n_rollouts"] == 5 * 24
    assert cost["n_gold"] == n_gold
    assert cost["sandbox_s"] == 10.0
    assert cost["sandbox_s_all_gold"] == pytest.approx(10.0 / n_gold * 120)
    assert cost["tokens"] == 50.0


def test_rows_are_put_in_the_order_of_their_steps_and_groups_end_with_their_step():
    table = build_table(
        {"group": ["a", "a", "b", "a"], "family": ["f"] * 4, "proxy": [1, 2, 3, 4], "gold": [1, 0, 1, 0],
         "step": [5, 5, 2, 9]}, source="x",
    )  # fmt: skip
    assert table.step.tolist() == [2, 5, 5, 9]
    assert table.unit.tolist() == [0, 1, 1, 2]  # the prompt of step 9 is another group than that of step 5


def test_without_steps_groups_count_as_steps_and_the_note_says_so():
    rows = [{k: v for k, v in row.items() if k != "step"} for row in make_rows(5, families=("f",))]
    table = build_table(columns_of(rows), source="x")
    assert table.step.tolist() == np.repeat(np.arange(5), 8).tolist()
    assert any("no step column" in note for note in table.notes)


@pytest.mark.parametrize("missing", ["group", "family", "proxy", "gold"])
def test_a_missing_column_is_named(missing):
    columns = columns_of(make_rows(3))
    del columns[missing]
    with pytest.raises(DataError, match=rf"missing: {missing}"):
        build_table(columns, source="log.csv")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("proxy", "high", "proxy must be a number or empty, got 'high' in row 3"),
        ("gold", "0.5", "gold must be a number or empty, got '0.5' in row 3"),
        ("gold", [1], "gold must be a number"),
        ("proxy", 10**400, "proxy must be a number"),
        ("group", None, "group must be text or a number, got None in row 3"),
        ("family", "", "family must be text or a number"),
        ("step", 1.5, "step must be a whole number"),
        ("step", None, "step must be a whole number"),
    ],
)
def test_mixed_types_name_the_row(tmp_path, name, value, message):
    rows = make_rows(3)
    rows[2][name] = value
    with pytest.raises(DataError, match=message):
        load_table(write_jsonl(tmp_path / "log.jsonl", rows))


def test_text_in_a_csv_names_its_line(tmp_path):
    rows = make_rows(3)
    rows[2]["proxy"] = "n/a"
    with pytest.raises(DataError, match="'n/a' in row 4"):  # the header is line 1
        load_table(write_csv(tmp_path / "log.csv", rows))


def test_nan_and_infinity_are_unscored_and_counted(tmp_path):
    rows = make_rows(10, families=("f",))
    rows[0]["proxy"], rows[1]["gold"], rows[2]["gold"] = float("nan"), float("inf"), None
    for path in (write_jsonl(tmp_path / "log.jsonl", rows), write_csv(tmp_path / "log.csv", rows)):
        table = load_table(path)
        assert table.paired.sum() == 77
        assert any("gold: 2 of 80 rows are unscored" in note for note in table.notes)
        assert any("1 infinite" in note for note in table.notes)
        assert audit(table).families["f"].n_pairs == 77


def test_true_and_false_are_one_and_zero(tmp_path):
    rows = [{"group": 0, "family": "f", "proxy": 0.5, "gold": g} for g in (True, False)]
    for path in (write_jsonl(tmp_path / "log.jsonl", rows), write_csv(tmp_path / "log.csv", rows)):
        assert load_table(path).gold.tolist() == [1.0, 0.0]


def test_copies_of_continuous_rows_are_left_out_and_ties_of_coarse_ones_are_kept(tmp_path):
    rows = make_rows(10, families=("f",), noise=0.01)
    doubled = load_table(write_jsonl(tmp_path / "log.jsonl", rows + rows[:40]))
    assert doubled.n_rows == 80
    assert any("40 rows are copies" in note for note in doubled.notes)
    coarse = [{**row, "proxy": round(row["proxy"]), "gold": round(row["gold"])} for row in rows]
    table = load_table(write_csv(tmp_path / "log.csv", coarse))
    assert table.n_rows == 80
    assert any("kept" in note for note in table.notes)


def test_an_id_tells_copies_from_contradictions(tmp_path):
    rows = [
        {**row, "id": i, "proxy": round(row["proxy"])} for i, row in enumerate(make_rows(5, families=("f",)))
    ]
    table = load_table(write_jsonl(tmp_path / "log.jsonl", rows + rows[:3]))
    assert table.n_rows == 40
    assert any("3 rows repeat an id" in note for note in table.notes)
    with pytest.raises(DataError, match="an id must name one rollout, and 1 rows"):
        load_table(write_jsonl(tmp_path / "log.jsonl", [*rows, {**rows[0], "gold": 0.123}]))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_an_empty_file_is_told(tmp_path, suffix):
    path = tmp_path / f"log{suffix}"
    path.touch()
    with pytest.raises(DataError, match="empty file"):
        load_table(path)


def test_a_header_alone_a_broken_line_and_a_torn_row_are_told(tmp_path):
    (tmp_path / "header.csv").write_text("group,family,proxy,gold\n")
    with pytest.raises(DataError, match="at least one row"):
        load_table(tmp_path / "header.csv")
    (tmp_path / "broken.jsonl").write_text('{"group": 1}\n{"group": \n')
    with pytest.raises(DataError, match="line 2"):
        load_table(tmp_path / "broken.jsonl")
    (tmp_path / "list.jsonl").write_text("[1, 2]\n")
    with pytest.raises(DataError, match="got list in line 1"):
        load_table(tmp_path / "list.jsonl")
    (tmp_path / "torn.csv").write_text("group,family,proxy,gold\n1,f,0.5\n")
    with pytest.raises(DataError, match="4 fields in every row, got 3 in line 2"):
        load_table(tmp_path / "torn.csv")
    (tmp_path / "no.parquet").write_text("this is no Parquet file")
    with pytest.raises(DataError, match="Parquet"):
        load_table(tmp_path / "no.parquet")


def test_what_is_not_there_or_of_an_unknown_kind_is_told(tmp_path):
    with pytest.raises(DataError, match="nothing there"):
        load_table(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="a folder"):
        load_table(tmp_path)
    (tmp_path / "log.xlsx").touch()
    with pytest.raises(DataError, match=r"\.xlsx"):
        load_table(tmp_path / "log.xlsx")
    RunLog(tmp_path / "run").close()
    with pytest.raises(DataError, match="at least one row"):
        load_table(tmp_path / "run")


def test_a_propensity_that_could_not_have_been_drawn_is_refused():
    columns = columns_of(make_rows(3)) | {"propensity": [0.0] * 48}
    with pytest.raises(DataError, match="propensity"):
        build_table(columns, source="x")


def test_parquet_without_its_package_gives_the_pip_line(tmp_path, monkeypatch):
    (tmp_path / "log.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"trueup\[parquet\]"):
        load_table(tmp_path / "log.parquet")


@pytest.mark.parametrize("n", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_rows_are_read_and_audited(tmp_path, n):
    rng = np.random.default_rng(0)
    group = np.arange(n) // 8
    gold = (rng.random(n) < 0.5).astype(int)
    proxy = np.clip(0.2 + 0.6 * gold + rng.normal(0, 0.15, n), 0, 1)
    path = tmp_path / "log.csv"
    with path.open("w") as file:
        file.write("group,family,proxy,gold\n")
        file.writelines(
            f"{g},f{g % 3},{p},{r}\n" for g, p, r in zip(group, proxy.tolist(), gold, strict=True)
        )
    result = audit(load_table(path))
    assert sum(f.n_pairs for f in result.families.values()) == n
    assert sum(f.n_groups for f in result.families.values()) == n // 8
    json.dumps(result.to_json(), allow_nan=False)
