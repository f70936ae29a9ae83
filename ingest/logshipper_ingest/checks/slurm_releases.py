"""Releases of Slurm and the tests of the plugin on each. docs/slurm-releases.md has the same
table for people."""

from collections.abc import Mapping

from logshipper_ingest.checks.findings import Finding, note, ok

RUN, BUILT = "run", "built"
RELEASES: Mapping[tuple[int, int], str] = {
    (20, 11): BUILT,
    (21, 8): BUILT,
    (22, 5): RUN,
    (23, 2): BUILT,
    (23, 11): RUN,
    (24, 5): BUILT,
    (24, 11): RUN,
    (25, 5): BUILT,
    (25, 11): RUN,
    (26, 5): BUILT,
}
COMPARED_SINCE = (21, 8)  # older ones load any plugin, and plugins lack the release of their build
_UNSAID = (0, 0)


def release_name(version: tuple[int, int]) -> str:
    if version == _UNSAID:
        return f"before {release_name(COMPARED_SINCE)}"
    return f"{version[0]}.{version[1]:02d}"


def fits(plugin: tuple[int, int], slurm: tuple[int, int]) -> bool:
    """Whether a plugin was built for a Slurm, as far as it tells."""
    return plugin == slurm or (plugin == _UNSAID and slurm < COMPARED_SINCE)


def trial(about: str, slurm: tuple[int, int]) -> Finding:
    """Return the tests of the plugin on this release."""
    name, done = release_name(slurm), RELEASES.get(slurm)
    if done == RUN:
        return ok(about, f"Slurm {name}: jobs were run with the plugin on this release")
    run = ", ".join(release_name(version) for version in RELEASES if RELEASES[version] == RUN)
    state = (
        "was built against this release, and not run" if done else "wasn't tried with this release"
    )
    words = f"Slurm {name}: the plugin {state}; it ran on {run}"
    fix = "Run a job, one that is cancelled and one that runs out of memory on one node first."
    return note(about, words, fix)
