"""What each request does in each state of a transaction, as one table.

A request is looked up here once the producer's id was found to be the one of its transactional id: another one is
INVALID_PRODUCER_ID_MAPPING. Its epoch must then be the current one, or PRODUCER_FENCED, except where the table says
what an end of transaction version 2 does with the epoch before: that is the same end asked for again, because the
answer with the new epoch was lost (KIP-890). Where the table says WAIT for InitProducerId or for such an end, epochs do
not count.

Decisions are applied at once, so no state is ever pending: in Kafka a second request between a decision and its commit
is told to wait, here it is decided on what the first one brought about, and both answers leave with the commit.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kbroker.coordinator.txn.transaction import State


class Do(Enum):
    BUMP = "a new epoch, or a new producer id when the epochs are used up; Empty"
    FENCE = "the transaction is aborted under a new epoch; CONCURRENT_TRANSACTIONS until that is done"
    WAIT = "CONCURRENT_TRANSACTIONS: markers are being written"
    TAKE = "the partitions belong to the transaction; Ongoing"
    LOOK = "each partition: is it part of the transaction, or TRANSACTION_ABORTABLE"
    END = "PrepareCommit or PrepareAbort; with version 2 under a new epoch"
    SAME = "it was ended like this before: told again"
    REFUSE = "INVALID_TXN_STATE"
    FENCED = "PRODUCER_FENCED"


class Ends(NamedTuple):
    commit: Do
    abort: Do

    def of(self, *, commit: bool) -> Do:
        return self.commit if commit else self.abort


class Row(NamedTuple):
    init: Do  # InitProducerId
    add: Do  # AddPartitionsToTxn, AddOffsetsToTxn, and what a partition's leader adds
    verify: Do  # what a partition's leader asks
    end: Ends  # EndTxn before version 5
    end_again: Ends  # EndTxn from version 5, with the epoch before the current one
    end_new: Ends  # EndTxn from version 5, with the current epoch


BUMP, FENCE, WAIT, TAKE, LOOK, END, SAME, REFUSE, FENCED = Do

# fmt: off
#                           init   add   verify  commit  abort     commit  abort     commit  abort
ANSWERS = {
    State.EMPTY:           Row(BUMP,  TAKE, LOOK, Ends(REFUSE, REFUSE), Ends(FENCED, FENCED), Ends(REFUSE, END)),
    State.ONGOING:         Row(FENCE, TAKE, LOOK, Ends(END,    END),    Ends(FENCED, FENCED), Ends(END,    END)),
    State.PREPARE_COMMIT:  Row(WAIT,  WAIT, WAIT, Ends(WAIT,   WAIT),   Ends(WAIT,   WAIT),   Ends(WAIT,   WAIT)),
    State.PREPARE_ABORT:   Row(WAIT,  WAIT, WAIT, Ends(WAIT,   WAIT),   Ends(WAIT,   WAIT),   Ends(WAIT,   WAIT)),
    State.COMPLETE_COMMIT: Row(BUMP,  TAKE, LOOK, Ends(SAME,   REFUSE), Ends(SAME,   REFUSE), Ends(REFUSE, END)),
    State.COMPLETE_ABORT:  Row(BUMP,  TAKE, LOOK, Ends(REFUSE, SAME),   Ends(REFUSE, SAME),   Ends(REFUSE, END)),
}
# fmt: on
