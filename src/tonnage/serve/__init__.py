"""The inference server: models behind the Open Inference Protocol, over REST and gRPC."""
