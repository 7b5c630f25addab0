"""Plays traces of jobs on GPUs of several types under a policy."""
