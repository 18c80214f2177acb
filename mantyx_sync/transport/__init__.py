"""Transport: HTTP exchanges, SSE frames and a stream that survives a bad network. Knows no MANTYX."""
