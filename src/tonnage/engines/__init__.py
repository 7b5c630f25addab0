"""Where things run: `local`, `podman`, `docker`, `kubernetes`, and whatever is registered beside them."""
