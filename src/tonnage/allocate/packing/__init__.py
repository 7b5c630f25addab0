"""Pods that share GPUs, placed one after the other onto nodes with several GPUs, so that few GPUs are left stranded."""
