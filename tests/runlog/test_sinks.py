"""Metric names that trainers aggregate as meant, and sinks held to what their own readers give back."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runlog.records import make_record
from trueup.errors import ConfigError, MissingExtraError
from trueup.runlog.names import aggregation_of, check_metric_name, safe_segment, step_metrics
from trueup.runlog.sinks import send
from trueup.types import REASONS


def test_every_name_of_a_step_is_reduced_as_its_last_segment_says():
    metrics = step_metrics(make_record(0, families=("minigrid", "max-flow sums")), per_family=True)
    for name in metrics:
        assert aggregation_of(name) == "mean", name
    for name in ("proxy/mean", "gold/mean", "calibrated/mean", "anchor/fraction", "unscored/fraction"):
        assert f"trueup/{name}" in metrics
    assert metrics["trueup/anchor_weight"] == 1.0
    assert "trueup/calibration/bias" not in metrics  # it was NaN: unknown is left out
    assert not any("not_selected" in name for name in metrics)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_makes_a_safe_name(reason):
    check_metric_name(f"trueup/failure/{reason}")


@pytest.mark.parametrize("bad", ["trueup/anchor/examined", "trueup/maximal", "trueup/mean/fraction_min_x"])
def test_a_name_that_would_be_reduced_by_accident_is_refused(bad):
    with pytest.raises(ConfigError, match="by accident"):
        check_metric_name(bad)


@given(st.text(max_size=30))
def test_any_family_name_becomes_one_harmless_segment(text):
    segment = safe_segment(text)
    assert segment
    assert "/" not in segment
    assert check_metric_name(f"trueup/family/{segment}/proxy/mean")


def test_failures_are_shares_of_all_rollouts():
    record = make_record(3)
    metrics = step_metrics(record)
    assert metrics["trueup/failure/timeout_infrastructure"] == pytest.approx(np.isnan(record.proxy).mean())


def test_a_sink_that_fails_warns_and_the_others_still_get_the_step():
    class Broken:
        def log(self, step, metrics):
            raise OSError("disk full")

    class Kept:
        def log(self, step, metrics):
            self.got = (step, metrics)

    kept = Kept()
    with pytest.warns(RuntimeWarning, match="disk full"):
        metrics = send(make_record(4), [Broken(), kept])
    assert kept.got == (4, metrics)


def test_tensorboard_event_files_hold_the_scalars(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.event_file_writer import EventsWriter  # noqa: F401 - the reader below is of this package
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import masked_crc32c  # noqa: F401

    from trueup.runlog.sinks.tensorboard import TensorBoardSink

    sink = TensorBoardSink(tmp_path)
    sent = {step: send(make_record(step), [sink]) for step in (0, 1)}
    sink.close()
    got = {0: {}, 1: {}}
    (file,) = tmp_path.glob("events.*")
    data = file.read_bytes()
    while data:  # TFRecord: length, crc, payload, crc
        length = int.from_bytes(data[:8], "little")
        event = event_pb2.Event.FromString(data[12 : 12 + length])
        for value in event.summary.value:
            got[event.step][value.tag] = value.simple_value
        data = data[16 + length :]
    for step, metrics in sent.items():
        assert got[step] == pytest.approx(metrics, rel=1e-6)


def test_wandb_offline_run_takes_the_scalars(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from trueup.runlog.sinks.wandb import WandbSink

    run = wandb.init(
        mode="offline", dir=tmp_path, project="trueup-test", settings=wandb.Settings(silent=True)
    )
    sink = WandbSink(run)
    metrics = send(make_record(0), [sink])
    summary = {k: run.summary[k] for k in metrics}
    run.finish()
    assert summary == pytest.approx(metrics)


def test_mlflow_keeps_the_scalars(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    from trueup.runlog.sinks.mlflow import MlflowSink

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the client package has no database
    uri = (tmp_path / "mlruns").as_uri()
    sink = MlflowSink("contract", tracking_uri=uri)
    metrics = send(make_record(0), [sink])
    sink.close()
    run = MlflowClient(uri).get_run(sink.run_id)
    assert run.data.metrics == pytest.approx(metrics)
    assert run.info.status == "FINISHED"


def test_trackio_keeps_the_scalars(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio")
    from trueup.runlog.sinks.trackio import TrackioSink

    sink = TrackioSink("contract", name="one", embed=False)
    metrics = send(make_record(0), [sink])
    sink.close()
    from trackio.sqlite_storage import SQLiteStorage

    (row,) = SQLiteStorage.get_logs("contract", "one")
    assert row["step"] == 0
    assert {name: row[name] for name in metrics} == pytest.approx(metrics)


@pytest.mark.parametrize(
    ("module", "package", "cls"),
    [
        ("tensorboard", "tensorboardX", "TensorBoardSink"),
        ("wandb", "wandb", "WandbSink"),
        ("mlflow", "mlflow", "MlflowSink"),
        ("trackio", "trackio", "TrackioSink"),
    ],
)
def test_without_its_package_a_sink_gives_the_pip_line(monkeypatch, module, package, cls):
    import importlib

    sink = getattr(importlib.import_module(f"trueup.runlog.sinks.{module}"), cls)
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"trueup\[{module}\]"):
        sink(*(["somewhere"] if module == "tensorboard" else []))
