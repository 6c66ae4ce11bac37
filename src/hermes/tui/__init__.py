"""The full-screen terminal interface: a face that reads events and calls the supervisor, and can be deleted."""
