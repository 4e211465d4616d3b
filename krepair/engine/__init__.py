"""Where functions are mapped: in this process, or on Spark with a Java that was found for it."""
