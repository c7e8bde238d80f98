"""The messages and services that Sawhorse services speak over gRPC."""
