"""Whether programs of the system may be missing: not where requirements/system.sh has installed
them."""

import os
import shutil

from tests.servers.setting import MUST_FETCHED

# at import: tests see no setting of the caller's
_INSTALLED = (
    MUST_FETCHED
    and os.environ.get("LOGSHIPPER_TEST_PACKAGES") != "no"
    and os.geteuid() == 0
    and shutil.which("apt-get") is not None
)


def are_installed() -> bool:
    return _INSTALLED
