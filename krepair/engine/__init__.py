"""Engines that map functions over work items: in this process, or on Spark with a Java found for it."""
