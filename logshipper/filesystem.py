"""Detects network file systems from the mount table, without touching a hanging mount.

Every `logshipper run` imports it: no imports but `os`.
"""

import os

NETWORK_TYPES = frozenset(
    "9p acfs afs beegfs ceph cifs coda cvmfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs "
    "pvfs2 smb3 smbfs virtiofs wekafs".split()
)
LOCAL_FUSE_TYPES = frozenset(("fuse.fuse-overlayfs", "fuseblk"))


def network_type(path: str, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """Return the type (`nfs4`, `lustre`, ...) of a network file system at path, else None.

    Any FUSE but the known local ones counts as a network, because its server is unknown. Returns
    None with an unreadable mount table.
    """
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as table:
            mounts = [line.split() for line in table]
    except OSError:
        return None
    target = os.path.abspath(path)
    best, best_type = "", ""
    for fields in mounts:
        if len(fields) < 10 or "-" not in fields:
            continue
        point = _unescape(fields[4])
        inside = point in ("/", target) or target.startswith(point + "/")
        # a later mount on the same point hides the earlier one
        if inside and len(point) >= len(best):
            best, best_type = point, fields[fields.index("-") + 1]
    is_unknown_fuse = best_type.startswith("fuse") and best_type not in LOCAL_FUSE_TYPES
    return best_type if is_unknown_fuse or best_type in NETWORK_TYPES else None


def _unescape(point: str) -> str:
    """The kernel writes blanks, tabs, line feeds and backslashes of a mount point as octal
    escapes."""
    for escaped, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(escaped, plain)
    return point
