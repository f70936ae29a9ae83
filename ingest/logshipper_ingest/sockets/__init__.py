"""Unix sockets: their files, and who is at the other end."""
