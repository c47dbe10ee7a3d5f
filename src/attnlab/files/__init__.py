"""Reading and writing files: text of any encoding, atomic writing, locks, and the run directory."""
