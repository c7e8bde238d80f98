"""The Redis mirror, wake-ups and shared formats."""
