"""The blueprint language: strict YAML, changes, resolution to a plan, axes and combinations.

A file's way through this folder: ``files`` finds it and its bases, ``yaml_source`` makes a positioned ``tree`` of it,
``changes`` flattens every mapping to paths, ``reading`` checks the values (``fields``, ``choices``, ``layers`` and
``workload`` say what may stand where), ``writing`` puts them into a ``state``, ``resolve`` makes a ``plan`` of it and
``resolved`` plain data. ``axes``, ``skips`` and ``baseline`` say what is explored, ``combinations`` makes the rows.

Rows are arrays, never a loop. A ``varied`` value is held over the axes (``grid``) that it depends on. ``columns``
applies the changes of all axes to each field by itself, ``space`` asks questions of the states that come of it, each of
the fields that it reads (``partial``). Where an axis rests (``resting``), what is left out (``faults``), which places
are one row (``merging``) and the ids of rows (``identity``) are such questions.
"""

from explorer.blueprint.schema import json_schema as json_schema
