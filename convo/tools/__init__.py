"""Tools: plain typed functions that a model may ask for, as values.

Read `tool` for the value and the decorator, `forms` for which types a schema can say and how their
values are read, `doc` for what a docstring adds, `arguments` for what is told a model whose
arguments do not fit, `naming` for which tool a call means, `outcomes` for the words that stand for
a failure. Nothing here runs a tool; the engine does.
"""

from convo.tools.arguments import Wrong, read_arguments
from convo.tools.doc import Told, told
from convo.tools.forms import Form, Mismatch, Record, form, made_by
from convo.tools.naming import Hosted, Lookup, Toolbox, definitions, lookup_of, toolbox
from convo.tools.outcomes import FAILED, NOT_APPROVED, output_text, timed_out
from convo.tools.tool import NO_VALUES, Approval, Context, Namespace, Tool, tool

__all__ = [
    "FAILED",
    "NOT_APPROVED",
    "NO_VALUES",
    "Approval",
    "Context",
    "Form",
    "Hosted",
    "Lookup",
    "Mismatch",
    "Namespace",
    "Record",
    "Told",
    "Tool",
    "Toolbox",
    "Wrong",
    "definitions",
    "form",
    "lookup_of",
    "made_by",
    "output_text",
    "read_arguments",
    "timed_out",
    "told",
    "tool",
    "toolbox",
]
