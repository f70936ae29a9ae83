"""Print Loki's entries of the cluster's jobs in order of time, one JSON `[metadata, labels, line]`
per line. The project's Python runs this in the machine."""

import json
import time

from logshipper_ingest.loki.client import LokiClient

now_ns = time.time_ns()
with LokiClient("http://127.0.0.1:3100") as client:
    logql = '{cluster="vm", kind=~"log|event"} | job_id!=""'
    for entry in client.entries(logql, now_ns - 7200 * 10**9, now_ns + 600 * 10**9):
        print(json.dumps([entry.metadata, entry.labels, entry.line]))
