"""Engines that run a verb's tasks: one after another in this process, or on Spark."""
