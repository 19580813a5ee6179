"""What an expression may be: abstract values.

The interpreter gives every expression a *set* of things it may evaluate to (:data:`Values`). A
thing says what an object is and where it was made, never how it was spelled. What is not known is
:class:`Unknown`, with the reason that ends up in a refusal.
"""

# mypy: implicit-reexport
# ruff: noqa: F401
from autofast.model.several import all_of, any_of, certainly, of_kind, one
from autofast.model.values.arguments import NO_ARGUMENTS, Arguments, Given, both_given, joined
from autofast.model.values.containers import COLLECTIONS, Dict, Entry, Seq, are_parameters
from autofast.model.values.program import (
    OBJECTS,
    Bound,
    Cls,
    Env,
    Ext,
    Func,
    Inst,
    Module,
    Partial,
    unbound,
)
from autofast.model.values.questions import (
    any_named,
    are_numbers,
    begins,
    const,
    consts,
    is_chosen,
    is_const,
    is_named,
    library_name,
    library_names,
    names_of,
    ordered,
    said,
    surely_named,
    things,
    why_unknown,
)
from autofast.model.values.simple import (
    COUNT,
    LOADED,
    NONE,
    NUMBER,
    STATE_DICT,
    Arg,
    Const,
    Located,
    Method,
    Num,
    Reason,
    Ref,
    Setting,
    Unknown,
    result_of,
)
from autofast.model.values.tensor import Tensor, is_on_device, is_scalar, is_weight
from autofast.model.values.thing import (
    NOTHING,
    SOMEWHERE,
    ById,
    ByName,
    InOrder,
    Row,
    Thing,
    Values,
    Where,
)
