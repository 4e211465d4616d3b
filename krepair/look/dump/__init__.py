"""Output lines of ``krepair dump``, for logs and for the other files of a partition folder."""
