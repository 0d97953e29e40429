"""Performs what the decisions ask for.

Read `chat` first: one conversation while it is open, and the order in which things become durable.

    a turn       `turn` is one request and its answer, `calling` sends it, and again where that is safe;
                 `owner_tail` reads what the owner has, `adopting` takes up what nobody heard of it. `edges`
                 is everything outside that this touches
    its record   `record` is how it moves, `opening` finds or begins one, `heads` and `turning` know where it
                 has been, `lease` who may write, `naming` and `keeping` the rest of its life
    files        `replay_file` owns a conversation; `item_file`, `state_file`, `attaching` and `schema` are
                 read, `named_file` bounds what is read of one, `whole_file` writes
    looking      `finding` (what a handle names), `looking` and `directory` in the store, `walking` at an
                 endpoint, `watching` what goes on; `glance` is one line, `coming` the next request,
                 `sent_request` an earlier one, `repairing` keeps a mended history, `paging` reads to the end

Runs of agents stand on the same turns. Read `running` for what may be done with one and
`performing` for its loop; `run_keeping` makes each step durable, `run_state` shows it as a
RunState, `standing` says where it is in the conversation, `conduct` what an owner does not allow.
`open_runs` tells which one stands in the way of a message, `left_runs` which ones nobody performs.
`agent_asking`, `preparing` and `handing` make what a model is asked, `tooling` and `guarding` call
what it asks for, `at_once` beside the loop, `theirs` and `hands` whatever a person wrote; `telling`
is what readers hear of it.
"""
