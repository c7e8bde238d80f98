"""Scheduling, launch, registration and termination of nodes."""
