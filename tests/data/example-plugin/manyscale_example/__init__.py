"""What docs/extending.md describes."""
