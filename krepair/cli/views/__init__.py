"""Views of a report, for a person or a program."""
