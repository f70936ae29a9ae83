"""LOGSHIPPER_TEST_SERVERS says what tests must have, of servers and of programs of others'.

off: no servers, their tests are skipped. fetched: all that `make test-all` gets by itself, which is
all but Loki. required: Loki, too. Without it the tests of what isn't there are skipped.
"""

import os

from tests.servers.places import GIVEN_LOKI

SETTING = "LOGSHIPPER_TEST_SERVERS"
OFF, FETCHED, REQUIRED = "off", "fetched", "required"
_WANTED = os.environ.get(SETTING, "")  # at import: tests see no setting of the caller's
ARE_OFF = _WANTED == OFF
MUST_FETCHED = _WANTED in (FETCHED, REQUIRED)
MUST_LOKI = _WANTED == REQUIRED or (GIVEN_LOKI is not None and not ARE_OFF)
