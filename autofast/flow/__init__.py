"""Control flow and data flow of a program: knows Python and the model of the script, nothing of
training.

The terms, as compilers use them:

place
    A statement of a function, or the head of a compound one, a handler, a case. All questions of
    :class:`~autofast.flow.cfg.Graph` take any syntax node and are about the place that it stands
    in.
activation
    One run of a function from its entry to its end. The graph, reaching definitions and liveness
    are about one activation; what other activations, closures and other functions may do to a
    variable is added without any order.
iteration
    One run of a loop's body. Its *exits* (``break``, ``continue``, ``return``, ``raise``) end it
    early; its *frequency* says in how many iterations a place runs.
``a`` dominates ``b``
    Whenever ``b`` begins, ``a`` has run before in this activation.
``a`` postdominates ``b``
    Whenever ``b`` has run and the function then returns or raises by ``raise``, ``a`` has run after
    it.
``b`` may follow ``a``
    Some way leads from ``a`` to ``b``; the conditions on it are not looked at.
scope, owner, variable
    A module, function, class or comprehension has a scope. The *owner* of a name is the scope whose
    variable it is; a variable is a name and its owner.
definition
    A place that gives a variable a value: an assignment, a parameter, a loop's target, ``with ...
    as``, ``except ... as``, an import, ``def``, ``class``, ``:=``, a capture of a pattern. ``x +=
    1`` is a use of one definition and makes another; ``del x`` ends one.
use
    A place that reads a variable (``del`` counts, too).
reaching
    A definition reaches a use where some way leads from it to the use on which the variable gets no
    other value. The value that a run finds there comes from one of the reaching definitions.
live
    A variable is live at a place where some way leads from there to a use of the value that it has
    now.
call graph, callee, site
    Which functions a call may run (its *callees*), and at which calls a function is run (its
    *sites*), as far as the values of the model say; where they do not say all, the reason is given
    in words.
view, source
    A view of a tensor has the memory of the tensor. The *sources* of an expression are all that it
    may be, or be a view of; two expressions may share memory where they have a source in common.
    *Fresh* is memory that nothing else holds.
value flow
    The way of a value from use to use, along definitions, calls, results, attributes and
    containers. A *question* judges each use: it is bad, nothing comes of it, or the value goes on.
typestate
    What is true of an object at a place, as the events on the ways there have made it; a *protocol*
    says which events are right in which state.
summary
    What is known of a function as a whole and holds at each of its sites, so that a call needs no
    second look into it.

Where an answer is not certain it is the wide one: more definitions reach, more variables are live,
more places may follow, fewer dominate.

Modules: ``graph`` nodes and edges, which ``build`` makes, ``solve`` the solver, ``cfg`` what runs
before what, ``loops`` and ``frequency`` how often, ``scopes`` whose variable a name is,
``accesses`` what a node does to variables, ``defuse`` definitions and uses, ``callgraph`` calls,
``program`` all of that for one script, each made once, ``memory`` what tensors share, ``typestate``
protocols over events on every way.
"""
