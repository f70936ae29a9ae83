"""Unix sockets: their files, and the identity of peers."""
