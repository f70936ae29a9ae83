"""Parts of pages: panels, queries, variables, transformations, links. Imports none of the others."""

from typing import Any

Json = dict[str, Any]  # Any: JSON
