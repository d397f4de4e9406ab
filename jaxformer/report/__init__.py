"""Pieces of pages and tables, which the studies and the pages of the ledger share."""
