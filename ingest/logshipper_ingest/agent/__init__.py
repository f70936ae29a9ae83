"""The agents: one per node ships all captures to servers; one per user fills the local store."""
