"""What a block and a model cost, counted without weights or data.

A pass over a module of meta tensors becomes rows (``ledger``), one for each kernel. A plan is looked at part by part
(``parts``), each distinct part once, and a combination is the sum of its parts; ``memory`` says what such a pass
keeps. ``counting`` makes all ``costs`` of one plan of them and ``audit`` traces the whole to compare; ``sweep`` adds
the same parts as arrays over many combinations, and ``crosscheck`` asks other counters about the same block.
"""
