"""Whether programs of the system may be missing: not where requirements/system.sh has installed
them."""

import os
import shutil

from tests.servers.build import SETTING

# at import: tests see no setting of the caller's
_INSTALLED = (
    os.environ.get(SETTING) == "required"
    and os.environ.get("LOGSHIPPER_TEST_PACKAGES") != "no"
    and os.geteuid() == 0
    and shutil.which("apt-get") is not None
)


def are_installed() -> bool:
    return _INSTALLED
