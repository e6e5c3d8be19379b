/* Whole lives of a generation: answers, cancels, workers that die, refuse, err or lie,
 * replays. Words: request_script.h. */
#include "request_script.h"

#define PREFILL  "new ready go quiet "
#define HANDOVER "new ready go first:11 quiet "
#define DECODE   "new ready go first:11 adopted quiet "
/* Its decode worker was lost while p0 computed. */
#define PLACE    "new ready go lost:d0 first:11 quiet =place "
#define SIX      "tok:12 tok:12 tok:12 tok:12 tok:12 tok:12 "
#define LIES     "error:worker_protocol "
#define MISCOUNT "ended:failed " LIES "freed:p0 freed:d0|"

/* In a row that holds for several cases each has a script of its own. */
static const struct scenario scenarios[] = {
	/* ---- answers ---- */

	{"a_request_goes_from_prompt_to_answer",
		"new ready queued go sent:prefill_p0 queued:0 "
		"tokens:p0:100 pages:p0:2 pages:d0:2 " /* 100 + 5 tokens */
		"first:11 sent:adopt_d0 =handover "
		"tokens:p0:0 pages:p0:2 " /* computed; its pages are still there */
		/* d is done with the lease before it says adopted. */
		"freed:p0 =handover pages:p0:0 adopted bytes:4096 by:shm "
		"tok:12 tok:9 d_ends:STOP_TOKEN:3 sent: ends:1 ended:stop "
		"got:3 out:2 " /* the stop token counts, and has no text */
		"reap live:1 freed:d0"},
	/* Tokens are missing, or there are more than were asked for. */
	{"a_decode_worker_that_miscounts_is_an_error",
		"new:3 ready go first:11 adopted " SIX "got:3 d_ends:LENGTH:0 " MISCOUNT
		"new:3 ready go first:11 adopted " SIX "got:3 d_ends:LENGTH:1 " MISCOUNT
		"new:3 ready go first:11 adopted " SIX "got:3 d_ends:LENGTH:2 " MISCOUNT
		"new:3 ready go first:11 adopted " SIX "got:3 d_ends:LENGTH:4 " MISCOUNT
		"new:3 ready go first:11 adopted " SIX
		"got:3 d_ends:LENGTH:99 " MISCOUNT},
	{"a_first_token_that_ends_it_touches_no_decode_worker",
		PREFILL "first:9 sent:release_p0 =done ended:stop held:d0:0 bytes:0 "
			"freed:p0|" PREFILL
			"first:8 sent:release_p0 =done ended:stop held:d0:0 bytes:0 "
			"freed:p0|"
			"new:1 ready go quiet first:11 sent:release_p0 =done "
			"ended:length held:d0:0 bytes:0 freed:p0"},
	{"ignore_eos_goes_on", "no_eos " PREFILL "first:9 =handover out:1 cancel free"},

	/* ---- cancel ---- */

	/* A reservation that nobody was told of is gone at once; the rest stays until the
	 * worker's word. */
	{"a_cancel_reaches_everyone_who_holds_something",
		"new cancel sent: =done ends:1 ended:cancelled cancel ends:1|"
		"new ready cancel sent: =done ends:1 ended:cancelled cancel "
		"ends:1|" PREFILL
		"cancel sent:cancel_p0 =done ended:cancelled cancel ends:1 "
		"held:p0:1 held:d0:0 free|" PLACE
		"cancel sent:release_p0 =done ended:cancelled cancel ends:1 "
		"held:p0:1 held:d0:0 free|" HANDOVER
		"cancel sent:cancel_d0,release_p0 =done ended:cancelled cancel ends:1 "
		"held:p0:1 held:d0:1 free|" DECODE /* p has not freed its copy yet */
		"cancel sent:cancel_d0,release_p0 =done ended:cancelled cancel ends:1 "
		"held:p0:1 held:d0:1 free"},
	{"a_cancel_stops_the_preparation", "new preparing cancel sent:stop_prepare"},
	/* The client's side may give up while it is told of the first token. */
	{"a_cancel_from_inside_a_delivery_is_a_cancel", PREFILL
		"cut_inside first:11 sent:release_p0 ends:1 ended:cancelled free"},

	/* ---- loss, without replays ---- */

	{"a_lost_prefill_worker_ends_what_only_it_had",
		PREFILL "lost:p0 sent: ended:failed http:503 error:worker_lost "
			"says:p0_was_lost no_retry|" PLACE
			"lost:p0 sent: ended:failed http:503 error:worker_lost "
			"says:p0_was_lost no_retry"},
	/* It had pulled all before p died, or not. */
	{"in_a_handover_the_decode_worker_has_the_last_word",
		HANDOVER "lost:p0 =handover adopted =decode cancel free|" HANDOVER
			 "lost:p0 back:d0 d_later:SOURCE =done error:worker_lost"},
	{"a_decode_worker_lost_before_it_was_told_is_replaced",
		PREFILL "lost:d0 =prefill first:11 =place placing sent: "
			"place:d1 sent:adopt_d1 cancel free"},
	{"the_same_lease_goes_to_another_decode_worker",
		HANDOVER "lost:d0 =place leased pause place:d1 lease:77 "
			 "back:d1 d_later:FULL =place sent:adopt_d1 "
			 "cancel sent:release_p0 free"},
	{"a_decode_worker_lost_while_it_writes_ends_it",
		DECODE "lost:p0 =decode " /* it has what it needs */
		       "lost:d0 ended:failed sent:"},
	/* The lease of the first ran out. */
	{"a_worker_that_gives_up_the_state_unasked_is_as_good_as_lost", PLACE
		"freed:p0 error:worker_lost|" DECODE "freed:d0 error:worker_lost free"},

	/* ---- sent back, refused, ended badly ---- */

	{"a_prompt_sent_back_waits_at_the_head_of_the_queue",
		PREFILL "new ready use:0 back:p0 p_later:FULL head queued:2 replayed:0 "
			"claims:0 sent: cancel use:1 cancel"},
	{"a_final_rejection_is_the_end", PREFILL
		"back:p0 p_refuses:TOO_LONG sent: http:500 says:5000_tokens|" HANDOVER
		"back:d0 d_refuses:TOO_LONG sent:release_p0 free"},
	{"what_a_worker_cannot_do_is_the_clients_error",
		PREFILL "back:p0 p_refuses:UNSUPPORTED sent: http:400 "
			"error:unsupported_parameter "
			"says:5000_tokens"},
	{"nan_and_errors_never_look_like_an_answer", PREFILL
		"p_ends:NAN ended:failed http:500 error:nan_logits free|" DECODE
		"d_ends:NAN error:nan_logits sent:release_p0 free|" PREFILL
		"p_ends:ERROR ended:failed http:500 error:worker_error free|" DECODE
		"d_ends:ERROR error:worker_error sent:release_p0 free|" PREFILL
		"p_ends:CANCELLED ended:failed http:500 " LIES "free|" DECODE
		"d_ends:CANCELLED " LIES "sent:release_p0 free"},
	{"a_state_of_another_length_is_never_handed_on",
		PREFILL "first:11/tokens " LIES "breaches sent:cancel_p0 free|" PREFILL
			"first:11/pages " LIES "breaches sent:cancel_p0 free|" PREFILL
			"first:11/none " LIES "breaches sent:cancel_p0 free|" PREFILL
			"first:11/lease " LIES "breaches sent:cancel_p0 free"},
	{"words_out_of_turn_end_the_request",
		HANDOVER "tok:12 " LIES "sent:cancel_d0,release_p0 free|" DECODE
			 "adopted " LIES "free"},
	/* It said adopted, but the prefill worker never heard that the pull was done. */
	{"a_copy_that_was_not_given_back_is_released_at_the_end",
		DECODE "d_ends:LENGTH sent:release_p0 free|" DECODE
		       "freed:p0 d_ends:LENGTH sent: free"},
	{"a_lease_that_nobody_can_pull_is_as_good_as_lost",
		"replays:1 " HANDOVER "back:d0 d_later:SOURCE =place place "
		"back:d0 d_later:SOURCE =place place back:d0 d_later:SOURCE =queued "
		"attempt:2 sent:adopt_d0,adopt_d0,release_p0 cancel free"},
	{"a_token_outside_the_vocabulary_is_no_answer",
		DECODE "tok:5000 " LIES "out:1 free|" PREFILL "first:4294967295 " LIES
		       "out:0 free"},

	/* ---- replays ---- */

	{"a_replay_prefills_prompt_and_answer_so_far",
		"replays:1 " DECODE "tok:12 lost:d0 =queued attempt:2 ids:102 prompt:100 "
		"held:p0:1 "               /* attempt 1 is still to be freed there */
		"go:d1 freed:p0 =prefill " /* news of the first attempt */
		"held:p0:1 first:13 adopted id:100:11 id:101:12 id:102:13 "
		"out:3 " /* each once */
		"replays_of_all:1 lost:d1 error:worker_lost no_retry free"},
	/* ---- migration ---- */

	{"what_a_decode_worker_offers_goes_on_at_another", DECODE
		"tok:12 offers sent:release_p0 =place attempt:2 leased lease:99 "
		"got:2 held:d0:1 place:d1 sent:adopt_d1 =handover adopted =decode "
		"claimed:d0:1 freed:d0 held:d0:0 =decode tok:13 d_ends:LENGTH:3 "
		"ended:length got:3 replays_of_all:0 free|"
		/* p has freed its copy long ago; back to the first worker. */
		DECODE
		"freed:p0 tok:12 offers sent: =place place:d1 adopted freed:d0 quiet "
		"tok:12 offers =place attempt:3 place:d0 sent:adopt_d0 adopted "
		"tok:12 tok:12 d_ends:LENGTH:5 ended:length free"},
	{"an_offer_that_is_lost_before_it_is_taken_is_a_replay",
		"replays:2 " DECODE
		"offers quiet lost:d0 sent: =queued attempt:3 deaths:0 "
		"replayed:1 go:d1 first:12 adopted =decode cancel free|"
		"replays:2 " DECODE
		"offers place:d1 quiet lost:d0 =handover adopted =decode "
		"cancel free|"
		"replays:2 " DECODE
		"offers place:d1 quiet lost:d1 =place deaths:1 leased "
		"cancel sent:release_d0 free"},
	{"an_offer_of_another_state_is_an_error",
		DECODE "offers:/tokens ended:failed " LIES "sent:cancel_d0,release_p0 "
		       "free|" DECODE "offers:/pages ended:failed " LIES "free|" DECODE
		       "offers:/lease ended:failed " LIES "free|" HANDOVER
		       "offers ended:failed " LIES "free"},
	{"a_cancel_releases_what_was_offered", DECODE
		"offers quiet cancel sent:release_d0 =done ended:cancelled free|" DECODE
		"offers place:d1 quiet cancel sent:cancel_d1,release_d0 free|" DECODE
		"offers place:d1 adopted quiet cancel sent:cancel_d1,release_d0 "
		"free"},

	{"an_eviction_is_replayed_after_the_worker_was_told_to_forget",
		"replays:2 " DECODE "evicted sent:cancel_d0,release_p0 =queued "
		"freed:d0 =queued freed:p0 cancel"},
	/* Want of pages and an end of service say nothing about the request. */
	{"evictions_and_drains_that_are_cut_use_up_no_replay",
		"replays:1 " DECODE "evicted =queued pause replayed:0 back:d0 freed:p0 "
		"go:d1 first:13 adopted evicted =queued replayed:0 replays_of_all:2 "
		"cancel free|"
		"replays:1 " DECODE "cut:d0 sent:release_p0 =queued replayed:0 back:d0 "
		"go:d1 first:13 adopted lost:d1 =queued replayed:1 cancel free|"
		"replays:1 " PREFILL "cut:p0 sent: =queued replayed:0 cancel free|"
		"replays:1 " HANDOVER "cut:d0 sent: =place leased place:d1 sent:adopt_d1 "
		"cancel free"},
	{"without_replays_evictions_and_cut_drains_are_errors",
		"replays:0 " DECODE "evicted error:worker_lost no_retry free|"
		"replays:0 " DECODE "cut:d0 http:503 error:draining no_retry:0 free|"
		"replays:0 " PREFILL "cut:p0 http:503 error:draining no_retry:0 free"},
	{"a_replay_forgets_how_far_it_had_come",
		"replays:1 " DECODE "begun computed offered taken lost:d0 =queued "
		"replayed queued_at begun:0 computed:0 offered:0 taken:0 cancel free"},
	/* What it was told before may still be there, or have left a tombstone. */
	{"a_decode_worker_that_was_lost_is_told_of_another_attempt",
		"new:10 ready go first:11 quiet lost:d0 =place attempt:2 place "
		"sent:adopt_d0 freed:d0 =handover claimed:d0:2 "
		"cancel sent:cancel_d0,release_p0 free"},
	/* The lease is of the first attempt whatever the number is by now. */
	{"a_lease_that_ended_is_missed_in_a_later_attempt",
		"replays:1 " HANDOVER
		"lost:d0 =place freed:p0 =queued replayed held:p0:0 "
		"cancel"},

	/* ---- how many workers may die of it ---- */

	{"a_request_that_ran_on_two_lost_workers_is_not_tried_on_a_third",
		"replays:2 " DECODE "lost:d0 =queued go:d1 lost:p0 =done "
		"error:worker_lost says:not_tried_on_a_third no_retry free"},
	/* The lease is whole, and yet. */
	{"a_lease_that_two_lost_workers_took_over_goes_to_no_third",
		HANDOVER "lost:d0 =place place:d1 lost:d1 =done error:worker_lost "
			 "sent:adopt_d1,release_p0 free"},
	/* It was there, reserved or computed, but nobody worked on it. */
	{"a_worker_that_was_lost_beside_it_does_not_count",
		"replays:2 " PLACE "lost:p0 =queued deaths:0 go:d1 lost:p0 =queued "
		"deaths:1 cancel free"},
};

int main(void)
{
	struct CMUnitTest tests[COUNT(scenarios)];

	for (size_t i = 0; i < COUNT(scenarios); i++)
		tests[i] = (struct CMUnitTest){.name = scenarios[i].name,
			.test_func = script_play,
			.initial_state = (void *)(uintptr_t)&scenarios[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
