"""What commands show in a terminal: tables, progress bars, times, how a program begins and ends."""
