"""Coordinators: pure shards that decide, each over one partition of an internal topic, and the edge that runs them."""
