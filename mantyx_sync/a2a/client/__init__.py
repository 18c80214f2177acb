"""Asking agents of others: A2A as a client speaks it."""
