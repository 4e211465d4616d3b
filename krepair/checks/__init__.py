"""Independent readers and judges of logs and indexes, which share no code with the kernels that decide."""
