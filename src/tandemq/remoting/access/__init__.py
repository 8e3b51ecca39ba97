"""Access control: who signed a request, and what that account may do."""
