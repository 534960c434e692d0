"""kill -9 under acks=all load, at chosen moments, again and again: nothing acknowledged may be missing.

    python -m bench.campaigns.crash --cycles 200 [--seed N] [--cycle K] [--keep DIRECTORY]

A cycle starts the broker on what the last kill left, judges every record it serves, lets producers, readers and
administrators loose on it, and kills it: at a moment by the clock, or inside the n-th write, sync, rename, unlink, cut
or creation of a file of some kind, also while it recovers or stops. Between two cycles indexes, snapshots and
checkpoints may vanish or be cut short.

Twenty cycles are an era: one data directory, one fixed port. Everything that is decided comes from the seed, the era
and the cycle, so a failure is replayed by running its era up to its cycle.

topics      what is written to, and what may be gone of it         plan      what a cycle does, from its seed
ledger      what was sent, acknowledged, seen and deleted          load      producers, readers, administrators
tripwire    the moment of a kill (shim.c)                          server    the broker's process
damage      what happens to files while it is down                 judge     what is served, held against the ledger
survivor    a real client that lives through the kills             talk      what is said to the broker
transactor  transactional producers                                stability what readers of committed records find
events      what really happened                                   verdict   Apache's kafka-dump-log on the files
era         twenty cycles, one after the other
"""
