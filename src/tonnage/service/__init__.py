"""The network service: the configuration server, its clients, and what both keep in files."""
