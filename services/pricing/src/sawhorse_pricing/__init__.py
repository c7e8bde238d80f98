"""The catalogue of instance types, offerings and prices over gRPC."""
