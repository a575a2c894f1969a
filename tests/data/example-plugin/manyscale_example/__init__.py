"""What docs/design/extending.md describes."""
