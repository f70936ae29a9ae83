"""Commands for occasional use by admins: replay, purge, fsck, drain."""
