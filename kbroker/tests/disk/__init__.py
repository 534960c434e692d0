"""A real broker on a disk that fails or dawdles on demand."""
