"""A broker inside a program: forks, left-overs, event loops."""
