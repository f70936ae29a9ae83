"""LOGSHIPPER_TEST_SERVERS names the servers and other programs that tests require.

off: no servers; their tests are skipped. fetched: everything that `make test-all` gets by itself,
which excludes Loki. required: Loki, too. Without the setting, tests with missing programs are
skipped.
"""

import os

from tests.servers.places import GIVEN_LOKI

SETTING = "LOGSHIPPER_TEST_SERVERS"
OFF, FETCHED, REQUIRED = "off", "fetched", "required"
_WANTED = os.environ.get(SETTING, "")  # at import: tests hide the caller's settings
ARE_OFF = _WANTED == OFF
MUST_FETCHED = _WANTED in (FETCHED, REQUIRED)
MUST_LOKI = _WANTED == REQUIRED or (GIVEN_LOKI is not None and not ARE_OFF)
