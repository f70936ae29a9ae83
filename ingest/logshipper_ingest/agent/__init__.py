"""The agents: of a node, all its captures to servers; of a user, the spool into the local store."""
