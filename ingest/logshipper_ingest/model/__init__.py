"""What there is to know of a job: captures, states and ends, records' keys, the X axis, ranks; and
what a store of jobs answers. Pure."""
