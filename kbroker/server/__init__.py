"""Composition: the rooms of one node, wired together."""
