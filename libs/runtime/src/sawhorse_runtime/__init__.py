"""Settings, logging, metrics, health, supervision, gRPC server and channel."""
