"""What a person sees and types in a terminal.

`conversing` is the loop of a chat, and the place to begin; every screen is a function from values to
lines, and `medium` says how wide they are and what may stand in them.

    the prompt   `prompt` reads a message; `editor` draws it, with `editor_input`, `editor_keys`,
                 `editor_history` and `editor_words`; `completing` is what Tab finds, `bar` the line below
    the chat     `commands` is the table of what begins with a slash, carried out in `along`, `asking_with`,
                 `copying`, `elsewhere`, `going_back` and `shelling`; `guide` is /help, `earlier` the last turns
    an answer    `answer` prints it while it comes, `answering` lets it be stopped, `sheet` and `markdown` lay
                 it out, `thinking` folds what came before it; `receipt` is its line, `spending` the sum
    agents       `runs` is a chat with them, `telling` shows what happens, `pausing` and `asking` what
                 waits, `deciding` and `rewriting` what becomes of it; `open_run` says that one is open
    screens      `inspecting` (with `tree` and `chart`), `coming`, `window`, `differing`, `raced`, `converted`,
                 `compacted`, `linting`, `listing`, `holdings`, `models`, `known_models`, `settings`, `findings`
    of them all  `table`, `labelled`, `status`, `pager`, `signals`, `unechoed` (keys while an answer comes)
"""
