"""Transactions under trouble, judged by what their clients saw: after Jepsen's workloads for Kafka.

    python -m bench.campaigns.jepsen --seconds 3600 [--seed N] [--broker apache] [--keep DIRECTORY]

Real clients, each a process, write transactions to a queue, copy a topic into another with the group's offsets in the
same transaction, feed and read. Meanwhile the broker is killed, paused and started anew, the wire between is slow, dead
or cut, and clients are killed, paused until their transaction has timed out, and replaced while they still live. When
all is over, everything is read at read_committed, and the checker says what could not have been.

history     what a client tells, folded into operations       checker     the anomalies
worker      the clients                                       proxy       the wire
trouble     what goes wrong, and when, from the seed          stage       broker, wire and clients of one run

The checker is checked: test_checker feeds it broken histories, plays has it judge brokers that lack one guarantee.

broken      guarantees of the control plane, off              lies        those of the data plane, off on the wire
"""
