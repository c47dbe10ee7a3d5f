"""From files and seeds to batches: corpora, tokenizers, collation, the DataModule."""
