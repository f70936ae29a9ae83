"""Real programs' output, recorded once: what a terminal shows of it is what has to be logged
(docs/rendering.md)."""
