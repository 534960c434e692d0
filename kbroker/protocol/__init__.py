"""The wire: schemas, the messages generated from them, and the codec that reads and writes them.

Doors: `messages` and `records` (classes), `codec` (bytes), `apis` (what each API key is). The rest is inside.
"""
