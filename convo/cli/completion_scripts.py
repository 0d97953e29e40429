"""The completion scripts of the shells.

They know no command. On Tab they run `convo` with _CONVO_COMPLETE set, the words so far, and last the word under the
cursor after "=". `convo --completion` prints them. `python -m convo.cli.completion_scripts completions` writes them
to a folder.
"""

import sys
from pathlib import Path
from types import MappingProxyType

from convo.errors import InvalidUsage

# %q, because a session named $(anything) was run by Enter after Tab.
BASH_SCRIPT = r"""# bash completion for convo
# Load it with: eval "$(convo --completion bash)"
_convo() {
    local line=${COMP_LINE:0:COMP_POINT} word words candidate help rest
    word=${line##*[[:space:]]}
    read -ra words <<< "${line%"$word"}"
    COMPREPLY=()
    # bash splits words at @ and = and replaces only the last part; characters special to the shell are quoted
    while IFS=$'\t' read -r candidate help; do
        rest=${candidate:${#word}-${#2}}
        [[ $rest == *[!A-Za-z0-9_.,:/@%+=-]* ]] && printf -v rest %q "$rest"
        COMPREPLY+=("$rest")
    done < <(_CONVO_COMPLETE=1 "$1" "${words[@]:1}" "=$word" 2>/dev/null)
}
complete -o default -F _convo convo
"""

ZSH_SCRIPT = r"""#compdef convo
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

FISH_SCRIPT = r"""# fish completion for convo
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

POWERSHELL_SCRIPT = r"""# PowerShell completion for convo
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

COMPLETION_SCRIPTS = MappingProxyType(
    {"bash": BASH_SCRIPT, "zsh": ZSH_SCRIPT, "fish": FISH_SCRIPT, "powershell": POWERSHELL_SCRIPT}
)
COMPLETION_FILE_NAMES = MappingProxyType(
    {"bash": "convo.bash", "zsh": "_convo", "fish": "convo.fish", "powershell": "convo.ps1"}
)


def get_completion_script(name: str) -> str:
    """Return the script of the shell with this name. Raises InvalidUsage for an unknown shell."""
    try:
        return COMPLETION_SCRIPTS[name]
    except KeyError:
        raise InvalidUsage(f"no completion script for {name!r}", hint="use bash, zsh, fish or powershell") from None


def write_completion_scripts(folder: Path) -> None:
    """Write the scripts of all shells into `folder`, with the file names that the shells look for."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in COMPLETION_SCRIPTS.items():
        (folder / COMPLETION_FILE_NAMES[name]).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_completion_scripts(Path(sys.argv[1] if len(sys.argv) > 1 else "completions"))
