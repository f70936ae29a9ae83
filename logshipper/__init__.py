"""The capture side: relay, renderer, classifier and spool, run as the user beside the job."""

__version__ = "0.1.0"
