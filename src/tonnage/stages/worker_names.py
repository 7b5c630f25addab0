"""What the controller calls the worker by, without importing it."""

WORKER = "tonnage.stages.worker"
TOKEN = "TONNAGE_RUN_TOKEN"  # in the worker's environment
