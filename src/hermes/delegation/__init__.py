"""Delegation: the tools by which an agent hands work to children, waits for them, watches, steers and stops them."""
