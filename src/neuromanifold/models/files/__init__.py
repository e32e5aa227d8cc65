"""Model files, read without executing anything."""
