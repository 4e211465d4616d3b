"""Lines of ``krepair dump``: logs batch by batch and record by record, and the files beside them."""
