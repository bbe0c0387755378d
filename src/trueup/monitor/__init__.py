"""Reads scored rollouts and says where the proxy can be trusted, and where not, with the evidence.

It reads records and log tables only, never the state of a loop, so it works on anyone's log, live or
afterwards, before a single anchored step has been taken.
"""

from trueup.monitor.audit import Audit, FamilyAudit, audit
from trueup.monitor.findings import KINDS, Finding, MonitorConfig
from trueup.monitor.gate import GateResult, gate
from trueup.monitor.readers import load_table, table_from_records
from trueup.monitor.recommend import Recommendation
from trueup.monitor.table import PairTable, build_table

__all__ = [
    "KINDS",
    "Audit",
    "FamilyAudit",
    "Finding",
    "GateResult",
    "MonitorConfig",
    "PairTable",
    "Recommendation",
    "audit",
    "build_table",
    "gate",
    "load_table",
    "table_from_records",
]
