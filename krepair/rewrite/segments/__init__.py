"""Tasks that write the kept batches of several segments into one new segment, and that verify it with other code."""
