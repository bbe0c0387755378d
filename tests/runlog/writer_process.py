"""Appends steps until it is killed; says on standard output which step is committed. Used by test_crash."""

import sys

from records import make_record

from trueup.runlog import RunLog

with RunLog(sys.argv[1]) as log:
    step = -1 if log.last_step is None else log.last_step
    print("ready", flush=True)
    while True:
        step += 1
        log.append(make_record(step, n_groups=40, group_size=8))
        print(step, flush=True)
