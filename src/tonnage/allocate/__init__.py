"""Many tasks on unequal GPUs: who runs where, and when."""
