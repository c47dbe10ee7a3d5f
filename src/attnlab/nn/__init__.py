"""The networks, in plain torch: no configuration and no Lightning comes in here.

A sentence goes `TokenEmbedding → Encoder → Memory → Bridge → Decoder(Attention) → Readout`; `Seq2Seq` holds
the six together. Every part receives finished parts and sizes, keyword by keyword.
"""
