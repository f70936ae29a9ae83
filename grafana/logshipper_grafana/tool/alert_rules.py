"""Alerts for users as a file for Grafana's alerting, made from Prometheus' rules in deploy/prometheus."""

from pathlib import Path

import yaml

from logshipper_grafana.parts import Json

FILE = Path(__file__).parent.parent / "provisioning" / "alerting" / "logshipper-user-alerts.yaml"
SOURCE = Path(__file__).parents[3] / "deploy" / "prometheus" / "logshipper-user-alerts.yml"
_HEAD = f"""\
# Alerts for users, by Grafana's alerting: docs/user-alerts.md. Copy it to /etc/grafana/provisioning/alerting/.
# `python -m logshipper_grafana.tool.render` makes it from deploy/prometheus/{SOURCE.name}.
"""


def text() -> str:
    """Return the file. Its queries contain the recorded ones, so Prometheus needs no rules."""
    source = SOURCE.read_text("utf-8").replace("https://grafana.example.org/", "{{ externalURL }}")
    (group,) = yaml.safe_load(source.replace("$value", "(or $values.A.Value 0.0)"))["groups"]
    records: dict[str, str] = {}
    alerts: list[Json] = []
    for rule in group["rules"]:
        query = rule["expr"]
        for name, recorded in records.items():
            query = query.replace(name, f"({recorded})")
        if "record" in rule:
            records[rule["record"]] = query
        else:
            alerts.append(_alert(rule, query))
    groups = [{"name": group["name"], "folder": "logshipper", "interval": "1m", "rules": alerts}]
    return _HEAD + yaml.safe_dump({"apiVersion": 1, "groups": groups}, sort_keys=False, width=120)


def _alert(rule: Json, query: str) -> Json:
    query_model: Json = {"refId": "A", "expr": query, "instant": True}
    condition = {"refId": "B", "type": "math", "expression": "$A > 0"}
    steps = {"logshipper-prometheus": query_model, "__expr__": condition}
    times = {"relativeTimeRange": {"from": 600, "to": 0}}  # required, without effect here
    return {
        "uid": f"logshipper-{rule['alert']}",
        "title": rule["alert"],
        "condition": "B",
        "data": [
            {"refId": model["refId"], "datasourceUid": source, **times, "model": model}
            for source, model in steps.items()
        ],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": "0s",
        **{name: value for name, value in rule.items() if name not in ("alert", "expr")},
    }
