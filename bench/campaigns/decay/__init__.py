"""A data directory that decays: see __main__.py."""
