"""Tells whether tests may require the programs that requirements/system.sh installs."""

import os
import shutil

from tests.servers.setting import MUST_FETCHED

# at import, because tests do not see the caller's settings
_INSTALLED = (
    MUST_FETCHED
    and os.environ.get("LOGSHIPPER_TEST_PACKAGES") != "no"
    and os.geteuid() == 0
    and shutil.which("apt-get") is not None
)


def are_installed() -> bool:
    return _INSTALLED
