"""Answer a shell that asks what could come next, and write the scripts that make it ask.

The scripts know no command: on every Tab they run `convo` with `_CONVO_COMPLETE` set, the words
so far as its arguments, and last the word under the cursor behind a `=` (an empty argument would
not survive every shell). The answer is a line for each candidate, its help after a tab; no line
at all leaves the shell to complete file names. So a script never grows old.

`convo --completion SHELL` prints a script; `python -m convo.cli.completions FOLDER` writes all
four as they lie in `completions/`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from typer._click import ClickException, Context
from typer._click.core import Parameter
from typer._click.shell_completion import _resolve_context, _resolve_incomplete

from convo.cli.app import shell
from convo.cli.commands import COMMANDS, Table
from convo.errors import ConvoError, Usage

BASH = r"""# bash completion for convo
# Load it with: eval "$(convo --completion bash)"
_convo() {
    local line=${COMP_LINE:0:COMP_POINT} word words candidate help rest
    word=${line##*[[:space:]]}
    read -ra words <<< "${line%"$word"}"
    COMPREPLY=()
    # bash cuts words at @ and =, and wants only what follows the cut; what it would run or spread is quoted
    while IFS=$'\t' read -r candidate help; do
        rest=${candidate:${#word}-${#2}}
        [[ $rest == *[!A-Za-z0-9_.,:/@%+=-]* ]] && printf -v rest %q "$rest"
        COMPREPLY+=("$rest")
    done < <(_CONVO_COMPLETE=1 "$1" "${words[@]:1}" "=$word" 2>/dev/null)
}
complete -o default -F _convo convo
"""

ZSH = r"""#compdef convo
# zsh completion for convo
# Load it with: eval "$(convo --completion zsh)", or put it in a folder of $fpath as _convo
_convo() {
    local line
    local -a candidates
    for line in "${(@f)$(_CONVO_COMPLETE=1 ${(Q)words[1]} "${(@Q)words[2,CURRENT-1]}" "=${PREFIX}" 2>/dev/null)}"; do
        [[ -n $line ]] && candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#candidates )); then
        _describe 'convo' candidates
    else
        _files
    fi
}
if [[ $funcstack[1] == _convo ]]; then
    _convo "$@"
else
    compdef _convo convo
fi
"""

FISH = r"""# fish completion for convo
# Load it with: convo --completion fish | source
function __convo_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -e words[1]
    set -l candidates (_CONVO_COMPLETE=1 convo $words "=$word" 2>/dev/null)
    if set -q candidates[1]
        printf '%s\n' $candidates
    else
        __fish_complete_path $word
    end
end
complete --command convo --no-files --arguments '(__convo_complete)'
"""

POWERSHELL = r"""# PowerShell completion for convo
# Load it with: convo --completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName convo -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } |
        ForEach-Object { $_.ToString().Trim('"', "'") })
    $env:_CONVO_COMPLETE = '1'
    try {
        convo @words "=$wordToComplete" 2>$null | ForEach-Object {
            $value, $help = $_ -split "`t", 2
            if (-not $help) { $help = $value }
            [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
        }
    } finally {
        Remove-Item Env:_CONVO_COMPLETE
    }
}
"""

SCRIPTS = MappingProxyType({"bash": BASH, "zsh": ZSH, "fish": FISH, "powershell": POWERSHELL})
FILES = MappingProxyType({"bash": "convo.bash", "zsh": "_convo", "fish": "convo.fish", "powershell": "convo.ps1"})


def script(name: str) -> str:
    """The script for one shell, by the shell's name."""
    try:
        return SCRIPTS[name]
    except KeyError:
        raise Usage(f"no completion for {name!r}", hint="bash, zsh, fish or powershell") from None


def write_scripts(folder: Path) -> None:
    """Write the scripts of all shells into `folder`, under the names that the shells look for."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SCRIPTS.items():
        (folder / FILES[name]).write_text(text, encoding="utf-8", newline="\n")


def candidates(words: Sequence[str], incomplete: str, table: Table = COMMANDS) -> list[tuple[str, str]]:
    """What could stand for `incomplete` after `words`, each with its help; file names are the shell's."""
    ctx = _resolve_context(shell(table), {}, "convo", list(words))
    asked, incomplete = _resolve_incomplete(ctx, list(words), incomplete)
    found = asked.shell_complete(ctx, incomplete)
    plain = [(item.value, " ".join((item.help or "").split())) for item in found if item.type == "plain"]
    return plain or (known_here(asked, ctx, incomplete) if isinstance(asked, Parameter) else [])


def known_here(asked: Parameter, ctx: Context, incomplete: str) -> list[tuple[str, str]]:
    """What this machine knows of: handles, models, providers, profiles. Of files the shell knows more."""
    from convo.cli.suggesting import OFFERS

    offer = OFFERS.get(asked.name or "")
    return offer(ctx, incomplete) if offer and asked.metavar != "FILE" else []


def answer(words: Sequence[str], table: Table = COMMANDS) -> int:
    """Print the candidates for the last of `words`, which has a `=` in front; returns the exit code.

    A shell shows nothing of an error here, so a line that cannot be read has no candidates.
    """
    *before, last = words or ("=",)
    try:
        found = candidates(before, last.removeprefix("="), table)
    except (ConvoError, ClickException):
        found = []
    sys.stdout.write("".join(f"{value}\t{said}\n" for value, said in found))
    return 0


if __name__ == "__main__":
    write_scripts(Path(sys.argv[1] if len(sys.argv) > 1 else "completions"))
