"""Groups and their committed offsets, over one partition of __consumer_offsets. Pure: no clock, no disk, no socket."""
