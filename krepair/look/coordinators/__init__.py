"""Content of the coordinators' topics: groups, their offsets, and transactions."""
