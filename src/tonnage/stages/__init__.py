"""A distribution carried out: the network cut into stages, a worker for each device, and what was measured."""
