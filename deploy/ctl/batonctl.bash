# bash completion of batonctl: `source` it. Commands and options come from its help, ids of
# workers and names of routers from its status.
_batonctl()
{
	local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	local command=${COMP_WORDS[1]} where=() words='' i

	for ((i = 1; i < COMP_CWORD - 1; i++)); do
		[[ ${COMP_WORDS[i]} == --runtime-dir ]] && where=(--runtime-dir "${COMP_WORDS[i + 1]}")
	done
	case $before in
	--runtime-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word"); return ;;
	--router) words=$("$program" status "${where[@]}" 2>/dev/null | awk '/^ROUTER/ {on = 1; next} !NF {on = 0} on {print $1}') ;;
	-o) words='json table' ;;
	drain | undrain | ask) words=$("$program" status "${where[@]}" 2>/dev/null | awk 'on {print $1} /^WORKER/ {on = 1}') ;;
	*)
		if [[ $word == -* ]]; then
			words=$("$program" --help | awk '$1 ~ /^-/ {print $1}')
		elif ((COMP_CWORD == 1)); then
			words=$("$program" --help | awk '/^  [a-z]/ {print $1}')
		elif [[ $command == ask ]] && ((COMP_CWORD == 3)); then
			words='status pools doctor'
		fi
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _batonctl batonctl
