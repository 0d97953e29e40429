# bash completion for convo
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
