"""Deployment of trained models: exporting and serving."""
