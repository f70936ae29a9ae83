"""`logshipper-agent check`: does a configuration fit the servers and the node?"""
