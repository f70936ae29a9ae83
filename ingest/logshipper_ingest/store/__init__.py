"""The local store: SQLite, one file per job, and a catalogue of them."""
