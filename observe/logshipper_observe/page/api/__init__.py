"""JSON answers of the page's server: one module per subject, `routes.py` names their paths."""
