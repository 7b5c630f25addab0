"""Many tasks on unequal GPUs: who runs where and when, with a bound, a reason for each placement, and a simulator."""
