"""Web server of trained models: a page on which sentences are translated, and a JSON interface."""
