"""A data directory and the upkeep of what is in it. Doors: `log_dirs` (LogDirs), `checkpoints`, `upkeep`, `cleaner`."""
