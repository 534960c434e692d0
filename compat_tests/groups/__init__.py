"""Stories of consumer groups, told to both brokers in frames; what they answer and what they write is compared."""
