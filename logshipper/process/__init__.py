"""The process that runs CMD: terminals, signals, keyboard, exit code. Imports relay, spool,
telegraf and the top."""
