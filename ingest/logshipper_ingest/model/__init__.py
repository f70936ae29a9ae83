"""A job's data: captures, states and ends, records' keys, the X axis, ranks; interfaces of job
stores. Pure."""
