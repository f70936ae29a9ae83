"""Levels of lines: a line with a level, and a line that merely contains the word."""

import pytest

from logshipper_observe.model.line_levels import level_of

SAY = {
    "ERROR cannot open file": "error",
    "ERROR: cannot open file": "error",
    "WARNING DeprecationWarning: `x` is deprecated": "warning",
    "WARNING:root:disk is nearly full": "warning",
    "CRITICAL:my.app:gone": "critical",
    "DEBUG:asyncio:Using selector": "debug",
    "[error] 1234#0: *1 open() failed": "error",
    "[WARN] retrying": "warning",
    "[ info ] started": "info",
    "2026-11-24 12:00:00,123 - trainer - ERROR - no GPU": "error",
    "2026-11-24 12:00:00,123 WARNING trainer: slow": "warning",
    "2026-11-24 12:00:00 INFO     epoch 3": "info",
    "2026-11-24 12:00:00.123 | ERROR    | app:main:12 - gone": "error",
    "2026-11-24T12:00:00.123Z ERROR app: gone": "error",
    "2026-11-24T12:00:00+01:00 [warn] slow": "warning",
    "2026/11/24 12:00:00 [error] 1#0: gone": "error",
    "11/24/2026 12:00:00 - WARNING - __main__ - 16-bits training: False": "warning",
    "[2026-11-24 12:00:00,123][torch.distributed][ERROR] - gone": "error",
    "[rank0]: [ERROR] gone": "error",
    "[12:00:00] ERROR    gone    main.py:3": "error",
    "E1124 12:00:00.123456 123 file.cc:10] gone": "error",
    "W20261124 12:00:00.123456 123 file.cc:10] slow": "warning",
    "I1124 12:00:00.123456 123 file.cc:10] started": "info",
    "F1124 12:00:00.123456 123 file.cc:10] Check failed": "critical",
    "time=2026-11-24T12:00:00Z level=warn msg=slow": "warning",
    'level="error" msg="gone"': "error",
    '{"time": 1, "level": "error", "msg": "gone"}': "error",
    '{"severity":"WARNING","msg":"slow"}': "warning",
    "error: could not compile `x`": "error",
    "warning: unused variable": "warning",
    "main.c:3:5: error: expected ';'": "error",
    "main.c:3:5: warning: unused variable 'x'": "warning",
    "fatal: not a git repository": "critical",
    "Nov 24 12:00:00 ERROR gone": "error",
    "INFO:tensorflow:Saving checkpoints": "info",
}
SAY_NONE = [
    "",
    "0 errors, 2 warnings",
    "with error bars",
    "error bars are of one deviation",
    "Error bars are of one deviation",
    "error: 0.0123",
    "Error: 3.2e-5",
    "error = 0.5",
    "ERROR 0.3",
    "ERROR RATE 0.3",
    "ERROR = 0.3",
    "ERROR",
    "mean error: 0.3",
    "Errors: 0",
    "ERRORS: 0",
    "no error: all is well",
    "step 3 error 0.2 loss 0.3",
    "12:00:00 finished without ERROR",
    "2026-11-24 12:00:00 the error is 0.3",
    "[errors] 3",
    "ERROR_CODE=0",
    "INFO_NCE loss 0.3",
    "InfoNCE loss: 0.3",
    "warnings.warn('x')",
    "  warnings.warn(",
    "critical path: 3 s",
    "Debug build",
    "debug mode: off",
    "log level: 3",
    "the level is error",
    "level = 3",
    "noise_level=error.std()",
    "set level=3",
    '{"error": 0.3, "level": 4}',
    '{"message": "level=error"}',
    "epoch 3 | error 0.3 | info 0.5",
    "info",
    "alert.py",
    "fatality rate: 3",
    "E1124",
    "ValueError: bad",
    "Traceback (most recent call last):",
    "train.py:3: UserWarning: slow",
    "| error | warning |",
    "panic! at the disco",
]


@pytest.mark.parametrize(("line", "level"), SAY.items())
def test_a_line_that_says_its_level(line: str, level: str) -> None:
    assert level_of(line) == level


@pytest.mark.parametrize("line", SAY_NONE)
def test_an_ordinary_line(line: str) -> None:
    assert level_of(line) == ""
