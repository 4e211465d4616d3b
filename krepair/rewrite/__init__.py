"""Tasks that write new logs and index files into the work folder, and that verify each with independent code."""
