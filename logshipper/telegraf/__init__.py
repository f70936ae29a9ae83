"""What a job sends to its own Telegraf port: datagrams and lines in, metadata records out. Imports
the top only."""
