"""The fixes: for each ``--fix``, the findings that it reports, the changes that it plans, and how these are made."""
