"""Builders, fakes, contract suites and the independent plan checker. A dev dependency only."""
