"""The run log: one folder a run, append-only, safe against a kill at any byte, readable while it is written.

`RunLog` writes, `RunReader` reads, `export_pairs` turns a log into JSONL, CSV or Parquet for other tools, and
`trueup.runlog.sinks` sends the scalars of each step to TensorBoard, Weights & Biases, MLflow or trackio.
"""

from trueup.runlog.export import export_pairs
from trueup.runlog.names import check_metric_name, safe_segment, step_metrics
from trueup.runlog.reader import RunReader
from trueup.runlog.schema import LOG_NAME, SCHEMA_VERSION, is_run_folder
from trueup.runlog.writer import RunLog

__all__ = [
    "LOG_NAME",
    "SCHEMA_VERSION",
    "RunLog",
    "RunReader",
    "check_metric_name",
    "export_pairs",
    "is_run_folder",
    "safe_segment",
    "step_metrics",
]
