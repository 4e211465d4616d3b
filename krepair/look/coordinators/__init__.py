"""What the topics of the coordinators say: groups, their offsets, and transactions."""
