"""Faithfulness of attention weights: attributions, erasure, adversarial weights, distractors, alignment."""
