"""What is known of a job, as readers see it: records and properties, states, events, tags and
notes, JSON documents."""
