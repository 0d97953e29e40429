"""What can be said about a conversation that is known, as plain functions.

Read `known` first: everything that was read about one handle, wherever it came from, the run of
agents among it that is open there (`open_run`). `places`
answers what a link saw and sent, `forks` puts links in the order of a tree, `figures` says what one
link was, `bill` what requests cost and `chart` where their tokens came from, `drift` where a record
and its owner have come apart, `shape` is the JSON of `convo inspect --json`. `coming` is the next
request, `window` what fills the model's; `sides` and `requests` lay two histories or requests
beside each other, as far as `pointing` finds them the same. Where nobody recorded who went on from
whom, `strung` reads it off a conversation and `walked` off what a remote endpoint still tells.
`document` is a conversation as a file holds it, `passages` what a person reads in an item,
`snippet` the part that a search found; `redacting` takes out what `secrets` knows, also where it is
`encoded`. `linting` is a package of its own: what of all that will be refused, and how it is
mended.
"""

from convo.inspection.drift import drift
from convo.inspection.figures import Figures, figures
from convo.inspection.forks import Row, children, rows
from convo.inspection.known import Known
from convo.inspection.places import Places
from convo.inspection.shape import as_json
from convo.inspection.snippet import snippet
from convo.inspection.strung import strung
from convo.inspection.walked import Walked, walked

__all__ = [
    "Figures",
    "Known",
    "Places",
    "Row",
    "Walked",
    "as_json",
    "children",
    "drift",
    "figures",
    "rows",
    "snippet",
    "strung",
    "walked",
]
