"""kill -9 of the broker while groups rebalance and commit: no acknowledged offset is lost, every group finds together.

    python -m bench.campaigns.regroup --cycles 100 [--seed N] [--keep DIRECTORY]

Groups of both protocols live through all cycles of one data directory. Their members commit rising offsets of what
they own, come, go, and after a kill connect and beat again, as clients do; nobody helps. A cycle chooses its moment:

    commit       inside the n-th write to the offsets topic, which is done, not done or half done
    rebalance    the same while nobody commits and members come and go: the writes are those of rebalances
    joining, syncing, revoking    when so many members wait for that answer, or still own what they shall give up
    loading      some time into the next start, before it has read the offsets topic
    stop         no kill: a clean stop, with members in the middle of joining

After each start every group's offsets are held against the ledger, and then all members must own every partition once.

people      members of both protocols that live through kills     ledger      offsets sent and acknowledged
"""
