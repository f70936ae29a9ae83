"""A job's data for readers: records and properties, states, events, tags and notes, JSON documents."""
