"""Reads YAML in which no mapping may have a name twice."""

from __future__ import annotations

import yaml


class UniqueNames(yaml.SafeLoader):
    """Reads as ``yaml.safe_load``, which takes the last of two values of a name: here it is a YAMLError."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        names = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    line = key.start_mark.line + 1
                    raise yaml.YAMLError(f"{key.value!r} is there twice, again in line {line}")
                names.add(key.value)
        return super().construct_mapping(node, deep)
