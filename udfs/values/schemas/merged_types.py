"""Merges the Arrow types of a schema's versions into one, and converts arrays of each version to it.

Fields are joined by name; without regard to case where a record has one such name. What a version does not
have is null. Numbers are promoted as Avro promotes them (int to long, float and double; long to float and
double; float to double), decimals to one that holds both, an integer decimal too. Where no type holds both,
the later one becomes a separate field, with its type in the name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count

import pyarrow as pa
import pyarrow.compute as pc

_RANKS = {pa.int32(): 0, pa.int64(): 1, pa.float32(): 2, pa.float64(): 3}
_MOST_DIGITS = 38
_SPELLING = b"spelling"  # the name that a field of ``fields_of`` has in its schema, where its own is another


def safe_names(names: Iterator[str] | list[str]) -> list[str]:
    """Returns names that differ in more than case, in order; the first of equal ones keeps its own."""
    taken: set[str] = set()
    safe = []
    for name in names:
        chosen, number = name or "_", 1
        while chosen.casefold() in taken:
            number += 1
            chosen = f"{name}_{number}"
        taken.add(chosen.casefold())
        safe.append(chosen)
    return safe


def fields_of(
    names: Sequence[str], types: Sequence[pa.DataType], spellings: Sequence[str] = ()
) -> list[pa.Field]:
    """Returns fields with ``safe_names``, which keep the schema's names, by which versions are joined.

    spellings: these names, where others than ``names``.
    """
    safe = safe_names(list(names))
    return [_field(*parts) for parts in zip(safe, types, spellings or names, strict=True)]


def _field(name: str, type_: pa.DataType, spelling: str) -> pa.Field:
    return pa.field(name, type_, metadata=None if name == spelling else {_SPELLING: spelling})


def _spelling(field: pa.Field) -> str:
    return (field.metadata or {}).get(_SPELLING, field.name.encode()).decode()


def _folded(spelling: str) -> str:
    """Returns a name without case, and without the namespace of a union's branch."""
    return spelling.rpartition(".")[2].casefold()


def merged(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Returns the type that holds both; None where there is none."""
    if one.equals(other, check_metadata=True) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if one in _RANKS and other in _RANKS:
        return _promoted(one, other)
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return merged_structs([one, other])
    if pa.types.is_list(one) and pa.types.is_list(other):
        items = merged(one.value_type, other.value_type)
        return None if items is None else pa.list_(items)
    if pa.types.is_map(one) and pa.types.is_map(other):
        keys, items = merged(one.key_type, other.key_type), merged(one.item_type, other.item_type)
        return None if keys is None or items is None else pa.map_(keys, items)
    return None


def _promoted(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    low, high = sorted((one, other), key=_RANKS.__getitem__)
    # float holds no int32 exactly
    return pa.float64() if high == pa.float32() and low != pa.float32() else high


def merged_structs(structs: Iterable[pa.StructType]) -> pa.StructType:
    """Returns a struct with the fields of all, in the order in which they come first.

    A field is looked at once, so that many versions take as long as their fields are many.
    """
    first, *others = structs
    fields = list(first)
    taken = {field.name.casefold() for field in fields}
    for struct in others:
        name_counts = Counter(field.name.casefold() for field in struct)
        for field, (exact, alike) in zip(struct, _places(struct, fields), strict=True):
            for at in exact or alike:
                both = merged(fields[at].type, field.type)
                if both is not None:
                    fields[at] = fields[at].with_type(both)
                    break
            else:
                fields.append(_named(field, name_counts, taken))
                taken.add(fields[-1].name.casefold())
    return pa.struct(fields)


def _places(struct: pa.StructType, target: Sequence[pa.Field]) -> list[tuple[list[int], list[int]]]:
    """Returns for each field of a struct the indexes of ``target``'s fields of the same name: (exact, alike).

    exact: spelled the same; alike: the same without case, [] where the struct has several names that differ
    in case alone.
    """
    exact, alike = defaultdict(list), defaultdict(list)
    for at, field in enumerate(target):
        exact[_spelling(field)].append(at)
        alike[_folded(_spelling(field))].append(at)
    spellings = [_spelling(field) for field in struct]
    count_of = Counter(map(_folded, spellings))
    return [
        (exact[spelling], alike[_folded(spelling)] if count_of[_folded(spelling)] == 1 else [])
        for spelling in spellings
    ]


def _named(field: pa.Field, name_counts: Counter[str], taken: set[str]) -> pa.Field:
    """Returns a struct's field under a name that is free: its own, that with its type, or with a number.

    name_counts: the struct's names without case; that of another of its fields is that one's. taken: those
    of the merged type.
    """
    typed, plain = own_name(field.name, field.type), field.name.casefold()
    names = chain([field.name, typed], (f"{typed}_{number}" for number in count(2)))

    def is_free(name: str) -> bool:
        return name not in taken and name_counts[name] == (1 if name == plain else 0)

    return _field(next(free for free in names if is_free(free.casefold())), field.type, _spelling(field))


def own_name(name: str, type_: pa.DataType) -> str:
    """Returns ``NAME_TYPE``, such as ``id_int64``: for a field whose name one of another type has."""
    return f"{name}_{str(type_).partition('<')[0].partition('(')[0].partition('[')[0]}"


def storable(type_: pa.DataType) -> pa.DataType:
    """Returns the type as Delta's readers take it: string for null, boolean for a struct without fields.

    The boolean is true where the struct is not null.
    """
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_struct(type_) and not type_.num_fields:
        return pa.bool_()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(storable(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(storable(type_.value_type))
    return pa.map_(type_.key_type, storable(type_.item_type)) if pa.types.is_map(type_) else type_


def conformed(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Converts an array to a type that ``merged`` and ``storable`` made of its own."""
    if array.type.equals(target, check_metadata=True):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_struct(target):
        return _conformed_struct(array, target)
    if pa.types.is_struct(array.type):
        return pc.if_else(array.is_valid(), pa.scalar(True), pa.scalar(None, pa.bool_()))
    if pa.types.is_list(target):
        return list_of(array, conformed(array.values, target.value_type))
    if pa.types.is_map(target):
        keys, items = conformed(array.keys, target.key_type), conformed(array.items, target.item_type)
        return map_of(array, keys, items)
    return array.cast(target, safe=False)


def list_of(array: pa.ListArray, values: pa.Array) -> pa.Array:
    """Returns a list array with the same offsets and nulls, and other values."""
    made = pa.ListArray.from_arrays(_offsets(array), values, type=pa.list_(values.type))
    return _with_nulls_of(made, array)


def map_of(array: pa.MapArray, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Returns a map array with the same offsets and nulls, and other keys and items."""
    made = pa.MapArray.from_arrays(_offsets(array), keys, items, type=pa.map_(keys.type, items.type))
    return _with_nulls_of(made, array)


def _offsets(array: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset)


def _with_nulls_of(made: pa.Array, array: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), made, pa.scalar(None, made.type)) if array.null_count else made


def _conformed_struct(array: pa.StructArray, target: pa.StructType) -> pa.Array:
    arrays = [pa.nulls(len(array), field.type) for field in target]
    for at, place in enumerate(_places_in(array.type, target)):
        if place is not None:
            arrays[place] = conformed(array.field(at), target[place].type)
    mask = pc.invert(array.is_valid()) if array.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=mask)


def _places_in(struct: pa.StructType, target: pa.StructType) -> list[int | None]:
    """Returns the index in ``target`` of each field of a struct; None where the type has none for it."""
    return [
        next((at for at in exact + alike if _is_held(field.type, target[at].type)), None)
        for field, (exact, alike) in zip(struct, _places(struct, list(target)), strict=True)
    ]


def _is_held(one: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether ``target``, a stored type, holds another type."""
    if pa.types.is_null(one):
        return True
    if pa.types.is_struct(one):
        if pa.types.is_struct(target):
            return None not in _places_in(one, target)
        return not one.num_fields and pa.types.is_boolean(target)
    if pa.types.is_list(one) and pa.types.is_list(target):
        return _is_held(one.value_type, target.value_type)
    if pa.types.is_map(one) and pa.types.is_map(target):
        return _is_held(one.key_type, target.key_type) and _is_held(one.item_type, target.item_type)
    both = merged(target, one)
    return both is not None and both.equals(target)
