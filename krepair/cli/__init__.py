"""The command line: options in, views and exit codes out. The only package with typer and rich."""
