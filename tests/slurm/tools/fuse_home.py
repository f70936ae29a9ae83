"""A home on a network file system, simulated by FUSE. Root runs it in a cluster's mount namespace.

    python fuse_home.py PLACE UID serve|hang

serve: offer an empty `.logoptin` of UID, mode 0644, and refuse root, as NFS does with root_squash.
hang: answer no request, like a dead server. Prints `mounted`, then one line `OPERATION UID` for
each request for the file. Ends at the end of stdin. Protocol: linux/fuse.h, version 7.26.
"""

import ctypes
import os
import select
import struct
import sys
from typing import NoReturn

HEADER, REPLY = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
ROOT, FILE = 1, 2
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, ACCESS, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 14, 15, 18, 25, 26, 34, 36, 42)  # fmt: skip
NAMES = {LOOKUP: "lookup", OPEN: "open", READ: "read"}
SILENT = {FORGET, INTERRUPT, BATCH_FORGET}
ENOENT, EACCES, ENOSYS = 2, 13, 38


class Home:
    def __init__(self, place: str, uid: int, *, hangs: bool) -> None:
        self.uid = uid
        self.hangs = hangs
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fd},rootmode=40700,user_id=0,group_id=0,allow_other".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"home", place.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def attributes(self, node: int) -> bytes:
        mode = 0o40700 if node == ROOT else 0o100644
        return struct.pack(
            "<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, self.uid, self.uid, 0, 4096, 0
        )

    def answer(self, operation: int, node: int, uid: int, body: bytes) -> bytes | int:
        """Return the payload, or an error number."""
        if operation == INIT:
            return struct.pack(
                "<IIIIHHIIHHI7I", 7, 26, 65536, 0, 16, 12, 65536, 1, 0, 0, 0, *[0] * 7
            )
        if operation == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
        if uid != self.uid:
            return EACCES
        if operation == LOOKUP and node == ROOT and body == b".logoptin\0":
            return struct.pack("<QQQQII", FILE, 0, 0, 0, 0, 0) + self.attributes(FILE)
        if operation == OPEN:
            return struct.pack("<QII", 0, 0, 0)
        if operation in {READ, RELEASE, FLUSH, ACCESS}:
            return b""
        return ENOENT if operation == LOOKUP else ENOSYS

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([0, self.fd], [], [])
            if 0 in ready:
                return
            request = os.read(self.fd, 1 << 18)
            size, operation, unique, node, uid, _, _, _ = HEADER.unpack_from(request)
            body = request[HEADER.size : size]
            if operation in NAMES and (node == FILE or body == b".logoptin\0"):
                print(NAMES[operation], uid, flush=True)
            if operation in SILENT or (self.hangs and operation != INIT):
                continue
            answer = self.answer(operation, node, uid, body)
            error, payload = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(self.fd, REPLY.pack(REPLY.size + len(payload), error, unique) + payload)


def main() -> NoReturn:
    home = Home(sys.argv[1], int(sys.argv[2]), hangs=sys.argv[3] == "hang")
    print("mounted", flush=True)
    home.serve()
    os._exit(0)  # closes the device, so waiting processes get an error


if __name__ == "__main__":
    main()
