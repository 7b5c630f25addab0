"""The shortest time of one sample through a network that several equal accelerators and the processors share."""
