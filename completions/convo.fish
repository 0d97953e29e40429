# fish completion for convo
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
