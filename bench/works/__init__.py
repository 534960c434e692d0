"""The works of the race, by kind. Each is done on both brokers in turn; each gives figures that can be divided."""
