"""Pages that show the ledger: HTML, Markdown and their charts."""
