"""Plugin and keeper build without warnings against the headers of every Slurm release that a
distribution packages. This machine's compiler treats all warnings as errors."""

import subprocess
from pathlib import Path

import pytest

from logshipper_ingest.slurm.files import plugin_version
from tests.servers.places import ServerMissing
from tests.slurm.tools.plugin import SOURCE
from tests.tools.slurm_headers import SUITES, headers, release

BUILT = ("logshipper.so", "logshipper-identity.so", "logshipper-keeper")
UNVERSIONED = (0, 0)  # before 21.08, plugins don't record the release that they were built against


@pytest.mark.timeout(900)
@pytest.mark.parametrize("suite", SUITES)
def test_plugin_is_built_without_a_warning(tmp_path: Path, suite: str) -> None:
    try:
        include = headers(suite)
    except ServerMissing as error:
        pytest.skip(str(error))
    command = ["make", "-C", str(SOURCE), f"BUILD={tmp_path}", f"SLURM_INCLUDE={include}"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(BUILT)
    expected = release(include) if release(include) >= (21, 8) else UNVERSIONED
    assert [plugin_version(str(tmp_path / name)) for name in BUILT[:2]] == [expected, expected]
