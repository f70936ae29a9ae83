"""Columns of the ledger: what became of the lines of a stream."""

OUTCOMES = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
COLUMNS = ("read", *OUTCOMES)  # read is their sum
