"""A quick look at values: are they such as decoding leaves them?

Most of what clients send is in canonical form already: no unknown field, no zero that would vanish, no quantity or time
in another form. For each type there is a msgspec type that takes exactly such values, and a conversion to it, which is
one call into C, says so. What it refuses may still be right: that is for the decoder to say. So a shape may be too
narrow, but never too wide (`tests/unit/apiserver_patch/test_schema_shapes.py`).

A shape is made when its type has been asked for a number of times, of the structs that have been met by then: a pod can
hold hundreds, of which hardly any is ever seen, and to read their definitions would hold up a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from . import schema_source as source
from .times import MICROS, SECONDS

#: Says whether decoding would leave a value as it is; when in doubt, no.
Fits = Callable[[Any], bool]

#: Quantities of which it is plain that they are canonical: few digits, so that no larger unit could take them up.
_QUANTITY = r"\A(?:0|[1-9][0-9]{0,2}(?:m|k|M|G|T|Ki|Mi|Gi|Ti)?)\Z"
_INT32, _INT64 = 1 << 31, 1 << 63

_SIMPLE: dict[str, Any] = {
    "number": float,
    "time": Annotated[str, Meta(pattern=rf"\A{SECONDS}\Z")],
    "microtime": Annotated[str, Meta(pattern=rf"\A{MICROS}\Z")],
    "quantity": Annotated[str, Meta(pattern=_QUANTITY)],
    "intorstring": int | str,
    "raw": Any,
}


def never(value: Any) -> bool:
    """The answer for what has no shape."""
    return False


class Shapes:
    """The shapes of the types that are asked for. `met` says whether values of a struct have been decoded."""

    def __init__(self, met: Callable[[str], bool], *, warm: int = 32) -> None:
        self._met = met
        #: So often a type is asked for before it gets a shape.
        self._warm = warm
        #: (model, field, or empty for the whole) -> how often it was asked for; its shape, from then on.
        self._asked: dict[tuple[str, str], int] = {}
        self._fits: dict[tuple[str, str], Fits] = {}
        self._structs: dict[str, type[Struct] | None] = {}

    def fits(self, model: str, name: str, value: Any) -> bool:
        """Whether decoding would leave this field's value as it is. Without a name, `value` is a whole object: it may
        lack what is always written."""
        known = self._fits.get((model, name))
        if known is not None:
            return known(value)
        asked = self._asked[model, name] = self._asked.get((model, name), 0) + 1
        if asked >= self._warm:
            self._fits[model, name] = self._of_field(model, name) if name else self._of_object(model)
        return False

    def _of_object(self, model: str) -> Fits:
        shape = self._make(model, (), whole=False)
        return never if shape is None else _fits(shape)

    def _of_field(self, model: str, name: str) -> Fits:
        field = source.struct(model).fields.get(name)
        shape = self._shape(field.type, field.keep_zero, ()) if field is not None else None
        if shape is None:
            return never
        # msgspec keeps what it works out about a type only with structs.
        fits = _fits(msgspec.defstruct("Holder", [("value", shape)], gc=False))
        return lambda value: fits({"value": value})

    def _struct(self, model: str, within: tuple[str, ...]) -> type[Struct] | None:
        if model in within or not self._met(model):
            return None  # it holds itself, or is not met with
        if model not in self._structs:
            self._structs[model] = self._make(model, within, whole=True)
        return self._structs[model]

    def _make(self, model: str, within: tuple[str, ...], *, whole: bool) -> type[Struct] | None:
        """None for a struct that no decoding leaves as it is. A `whole` one has all that is always written."""
        fields: list[Any] = []
        names: dict[str, str] = {}
        for number, field in enumerate(source.struct(model).fields.values()):
            shape = self._shape(field.type, field.keep_zero, (*within, model))
            if shape is None:
                if field.fill and whole:
                    return None
                continue  # as good as unknown: an object that has the field is left to the decoder
            attribute = f"f{number}"
            names[attribute] = field.name
            fields.append((attribute, shape) if field.fill and whole else (attribute, shape, None))
        return msgspec.defstruct(
            model, fields, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False
        )

    def _shape(self, type_: source.Type, keep: bool, within: tuple[str, ...]) -> Any:
        """A msgspec type, or None. `keep`: an empty or zero value stays."""
        kind = type_.kind
        if kind == "string":
            return str if keep else Annotated[str, Meta(min_length=1)]
        if kind == "boolean":
            return bool if keep else None
        if kind == "integer":
            bound = _INT64 if type_.go == "int64" else _INT32
            return Annotated[int, Meta(ge=-bound if keep else 1, le=bound - 1)]
        if kind in ("list", "map"):
            assert type_.item is not None
            item = self._shape(type_.item, True, within)
            if item is None:
                return None
            held: Any = list[item] if kind == "list" else dict[str, item]  # type: ignore[valid-type]
            return held if keep else Annotated[held, Meta(min_length=1)]
        if kind == "struct":
            return Any if type_.inline is not None else self._struct(type_.struct, within)
        return _SIMPLE.get(kind)


def _fits(shape: type[Struct]) -> Fits:
    convert, refused = msgspec.convert, msgspec.ValidationError

    def fits(value: Any) -> bool:
        try:
            convert(value, shape)
        except refused:
            return False
        return True

    return fits
