"""The queue consumer: cordon, request a replacement, drain."""
