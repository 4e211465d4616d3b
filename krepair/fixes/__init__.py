"""One module for each ``--fix``: what it looks at, the findings it makes of that, and the changes it plans."""
