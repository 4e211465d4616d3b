"""What a person or a program sees of a report."""
