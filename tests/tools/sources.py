"""Where our packages are."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = (ROOT, ROOT / "ingest", ROOT / "observe", ROOT / "grafana")  # that Python is to look in
LOGSHIPPER = ROOT / "logshipper"
INGEST = ROOT / "ingest" / "logshipper_ingest"
OBSERVE = ROOT / "observe" / "logshipper_observe"
GRAFANA = ROOT / "grafana" / "logshipper_grafana"
PACKAGES = (LOGSHIPPER, INGEST, OBSERVE, GRAFANA)
SOURCES = os.pathsep.join(map(str, FOLDERS))  # for PYTHONPATH
