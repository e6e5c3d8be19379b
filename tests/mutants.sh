#!/usr/bin/env bash
# One-line breaks of the router's moves, each in a copy of the tree: the test that is named
# beside it must turn red. By hand, when these moves or their tests are rewritten; about a
# minute. usage: tests/mutants.sh [NAME...]   last line: N red, N green
set -uo pipefail
cd "$(dirname "$0")/.."
tree=$PWD/build/mutants
mkdir -p "$tree"

# name, file, the line, what it becomes, test program, test.
mutants=$(cat <<'TABLE'
token_before_adopted ;; router/request.c ;; [EV_TOKEN] = {RQ_DONE, request_end_breach}, ;; [EV_TOKEN] = {RQ_HANDOVER, take_token}, ;; test_request_lives ;; words_out_of_turn_end_the_request
same_attempt_again ;; router/request.c ;; r->attempt++; ;; r->attempt += 0; ;; test_request_lives ;; a_replay_prefills_prompt_and_answer_so_far
sent_back_to_the_end ;; router/request.c ;; r->front = row->next == RQ_QUEUED && ev != EV_PREPARED; ;; r->front = false; ;; test_request_lives ;; a_prompt_sent_back_waits_at_the_head_of_the_queue
copy_never_released ;; router/request.c ;; r->giver = r->p; /* NULL: it is gone, or has given it back already */ ;; r->giver = NULL; ;; test_request_lives ;; a_copy_that_was_not_given_back_is_released_at_the_end
never_late ;; router/dispatch.c ;; return now_ns - MIN(since_ns, now_ns) >= LATE_NS; ;; return now_ns - MIN(since_ns, now_ns) >= 1000 * LATE_NS; ;; test_dispatch ;; half_of_the_room_is_kept_for_what_was_passed_long_enough
held_before_told ;; router/request_claim.c ;; r->claim[i].told && r->claim[i].told_beat < beat) { ;; r->claim[i].told && r->claim[i].told_beat <= beat) { ;; test_held ;; an_answer_to_a_beat_before_the_message_says_nothing
sleep_counts_as_wait ;; router/dispatch.c ;; uint64_t waited_ns = ran_ns - MIN(r->waits_ns, ran_ns); ;; uint64_t waited_ns = now_ns - MIN(r->waits_ns, ran_ns); ;; test_pause_walk ;; slept_together_loses_nothing
drain_forgotten ;; router/fleet.c ;; w->draining = w->says_draining || w->told; ;; w->draining = w->says_draining; ;; test_orders ;; an_order_holds_against_a_beat_from_before_it
unreachable_stays ;; router/fleet.c ;; if (w->broken || quiet >= f->options.lost_ns) { ;; if (quiet >= f->options.lost_ns) { ;; test_handlers ;; a_worker_that_cannot_be_reached_is_lost
whole_share ;; router/fleet.c ;; return n_routers <= 1 ? mine : MIN(mine, free_now / n_routers); ;; return n_routers <= 1 ? mine : MIN(mine, free_now); ;; test_fleet ;; several_routers_share_what_the_worker_says_is_free
TABLE
)

# Anew but for the build in it.
find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -co --exclude-standard -z | tar --null -T - -c | tar -x -C "$tree" || exit 2
cd "$tree" || exit 2
cmake --preset dev -DWITH_CUDA=OFF >mutants.log || { cat mutants.log; exit 2; }

# The line, whatever stands before it, must be there once.
change() { # FILE FROM TO
	FROM=$2 TO=$3 awk '{
		line = $0; sub(/^[ \t]+/, "", line)
		if (line == ENVIRON["FROM"]) { print ENVIRON["TO"]; n++ } else print
	} END { exit n != 1 }' "$1" >mutant.tmp && mv mutant.tmp "$1"
}

run() { # PROGRAM: its output, built anew
	cmake --build --preset dev --target "router_$1" >mutants.log 2>&1 || return 1
	timeout 300 ctest --test-dir build/dev -R "^unit.router.$1\$" -V >mutants.out 2>&1
	sed 's/^[0-9]*: //' mutants.out >mutants.log
}

# Failed, or begun and never ended: an assertion of ours ended the program.
is_red() { # TEST
	grep -q "^\[  FAILED  \] $1\$" mutants.log ||
		[ "$(grep '^\[ ' mutants.log | tail -1)" = "[ RUN      ] $1" ]
}

red=0 green=0
while IFS= read -r row; do
	name=${row%% ;; *} && rest=${row#* ;; }
	file=${rest%% ;; *} && rest=${rest#* ;; }
	from=${rest%% ;; *} && rest=${rest#* ;; }
	to=${rest%% ;; *} && rest=${rest#* ;; }
	program=${rest%% ;; *} test=${rest#* ;; }
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	cp "$file" mutant.kept
	if ! change "$file" "$from" "$to"; then
		verdict="green: its line is not in $file once" green=$((green + 1))
	elif ! run "$program"; then
		verdict="green: it does not build" green=$((green + 1))
	elif ! grep -q "^\[ RUN      \] $test\$" mutants.log; then
		verdict="green: $program has no such test" green=$((green + 1))
	elif is_red "$test"; then
		verdict=red red=$((red + 1))
	else
		verdict="green: the break is not seen" green=$((green + 1))
	fi
	cp mutant.kept "$file"
	printf '%-22s %s: %s: %s\n' "$name" "$program" "$test" "$verdict"
done <<<"$mutants"
echo "$red red, $green green"
[ "$green" -eq 0 ] && [ "$red" -gt 0 ]
