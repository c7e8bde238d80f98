"""The Cloud protocol and its errors."""
