"""Report at the end of a test run how many recorded programs the renderer logs exactly as tmux
shows them."""

import pytest

PROPERTY = "program"  # of a test's report: the capture under test


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes: dict[str, bool] = {}
    for outcome in ("passed", "failed", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, []):
            name = dict(report.user_properties).get(PROPERTY)
            if name is not None:
                outcomes[name] = outcomes.get(name, True) and outcome == "passed"
    if outcomes:
        inexact = sorted(name for name, is_exact in outcomes.items() if not is_exact)
        terminalreporter.section("recorded programs")
        terminalreporter.line(f"{len(outcomes) - len(inexact)} of {len(outcomes)} programs exact")
        if inexact:
            terminalreporter.line(f"not exact: {', '.join(inexact)}")
