"""What admins call now and then: replay, purge, fsck, drain."""
