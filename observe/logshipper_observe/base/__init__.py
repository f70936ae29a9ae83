"""What all reading needs: words for times, sizes and states, output to a terminal or as JSON, how a
command runs."""
