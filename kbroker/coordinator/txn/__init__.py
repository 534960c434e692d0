"""Transactions: who produces under which transactional id, and how far its transaction has come."""
