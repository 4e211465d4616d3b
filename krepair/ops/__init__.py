"""One module for each verb: a function that takes typed values and returns a report. Nothing here prints."""
