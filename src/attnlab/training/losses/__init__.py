"""Terms of the training loss, one module each."""
