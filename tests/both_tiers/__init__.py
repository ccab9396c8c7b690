"""Tests that were missing: each is here because a mutation of its guard went unnoticed (see tests/mutants)."""
