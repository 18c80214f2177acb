"""The tests of mantyx_sync."""
