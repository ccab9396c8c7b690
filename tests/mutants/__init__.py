"""Mutants: each guard of the rules is taken out in turn, and a test has to go red (``python -m tests.mutants``)."""
