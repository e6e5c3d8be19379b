/* What the router counts, and its text for Prometheus. Loop thread only: plain numbers,
 * so a scrape costs its own text and nothing else. Workers have no HTTP: what their
 * beats carried is written here too. */
#ifndef ROUTER_METRICS_H
#define ROUTER_METRICS_H
#include "common/base/bytes.h"
#include "router/fleet.h"
#include "router/pairs.h"
#include "router/requests.h"

/* id, name, help */
#define METRIC_COUNTER_MAP(X)                                                            \
	X(prompt_tokens, "vllm:prompt_tokens_total", "tokens of prompts prefilled")      \
	X(generation_tokens, "vllm:generation_tokens_total", "tokens generated")         \
	X(preemptions, "vllm:num_preemptions_total",                                     \
		"sequences evicted for want of pages")                                   \
	X(prefix_queries, "vllm:prefix_cache_queries_total",                             \
		"tokens looked for in a prefix cache: there is none")                    \
	X(prefix_hits, "vllm:prefix_cache_hits_total",                                   \
		"tokens found in a prefix cache: there is none")                         \
	X(cached, "vllm:prompt_tokens_cached_total",                                     \
		"tokens of prompts that were not computed again")                        \
	X(corrupted, "vllm:corrupted_requests_total", "requests ended by NaN logits")    \
	X(replays, "baton_replays_total", "requests begun again after a loss")           \
	X(migrations, "baton_migrations_total",                                          \
		"sequences that a draining decode worker offered to others")             \
	X(replayed_tokens, "baton_replayed_prompt_tokens_total",                         \
		"tokens of prompts and answers prefilled again after a loss")            \
	X(breaches, "baton_protocol_breaches_total",                                     \
		"requests ended because a worker broke the protocol")                    \
	X(requeued, "baton_requeued_total", "requests that a worker sent back to wait")  \
	X(malformed, "baton_malformed_messages_total", "messages refused")               \
	X(strangers, "baton_unknown_peer_messages_total",                                \
		"messages of peers that said no hello")                                  \
	X(unsent, "baton_unsent_messages_total", "messages that could not be sent")      \
	X(workers_lost, "baton_workers_lost_total", "workers lost")                      \
	X(absent, "baton_absent_total",                                                  \
		"parts of requests that a worker did not hold when it was asked")        \
	X(rebound, "baton_socket_rebound_total",                                         \
		"times that the removed socket for workers was bound anew")              \
	X(gone, "baton_clients_gone_total", "clients that left before the end")          \
	X(refused, "baton_http_refused_total",                                           \
		"answers given before a request was read")                               \
	X(log_dropped, "baton_log_dropped_total",                                        \
		"log lines dropped because nobody read them")

enum metric_counter {
#define X(id, name, help) COUNTER_##id,
	METRIC_COUNTER_MAP(X)
#undef X
		COUNTER__COUNT
};

/* id, name, label, bucket set, help */
#define METRIC_HISTOGRAM_MAP(X)                                                          \
	X(ttft, "vllm:time_to_first_token_seconds", NULL, first,                         \
		"from request to first token")                                           \
	X(itl, "vllm:inter_token_latency_seconds", NULL, step,                           \
		"between two tokens of a generation")                                    \
	X(tpot, "vllm:request_time_per_output_token_seconds", NULL, step,                \
		"mean time per token after the first")                                   \
	X(e2e, "vllm:e2e_request_latency_seconds", NULL, whole,                          \
		"from request to end of generation")                                     \
	X(queue, "vllm:request_queue_time_seconds", NULL, whole, "waiting for workers")  \
	X(inference, "vllm:request_inference_time_seconds", NULL, whole,                 \
		"from dispatch to end")                                                  \
	X(prefill, "vllm:request_prefill_time_seconds", NULL, whole,                     \
		"from dispatch to first token")                                          \
	X(decode, "vllm:request_decode_time_seconds", NULL, whole,                       \
		"from first token to end")                                               \
	X(prompt, "vllm:request_prompt_tokens", NULL, tokens, "tokens of a prompt")      \
	X(generated, "vllm:request_generation_tokens", NULL, tokens, "tokens generated") \
	X(max_tokens, "vllm:request_params_max_tokens", NULL, tokens,                    \
		"most tokens asked for")                                                 \
	X(max_generated, "vllm:request_max_num_generation_tokens", NULL, tokens,         \
		"tokens of the longest choice of a request")                             \
	X(n, "vllm:request_params_n", NULL, choices, "choices asked for")                \
	X(computed, "vllm:request_prefill_kv_computed_tokens", NULL, tokens,             \
		"tokens of a prompt that were prefilled for it")                         \
	X(rows, "vllm:iteration_tokens_total", NULL, rows,                               \
		"tokens in one message of a decode step")                                \
	X(stage_prepare, "baton_stage_seconds", "stage=\"prepare\"", stage,              \
		"time that a generation spends in a stage")                              \
	X(stage_queue, "baton_stage_seconds", "stage=\"queue\"", stage,                  \
		"time that a generation spends in a stage")                              \
	X(stage_prefill, "baton_stage_seconds", "stage=\"prefill\"", stage,              \
		"time that a generation spends in a stage")                              \
	X(stage_handover, "baton_stage_seconds", "stage=\"handover\"", stage,            \
		"time that a generation spends in a stage")                              \
	X(stage_decode, "baton_stage_seconds", "stage=\"decode\"", stage,                \
		"time that a generation spends in a stage")

enum metric_histogram {
#define X(id, name, label, buckets, help) HIST_##id,
	METRIC_HISTOGRAM_MAP(X)
#undef X
		HIST__COUNT
};

/* Which limit turned a request away at admission. */
#define METRIC_LIMIT_MAP(X)                                                              \
	X(queue)                                                                         \
	X(no_workers)                                                                    \
	X(draining)                                                                      \
	X(context)                                                                       \
	X(memory)                                                                        \
	X(wait)
enum metric_limit {
#define X(name) LIMIT_##name,
	METRIC_LIMIT_MAP(X)
#undef X
		LIMIT__COUNT
};

#define METRIC_BUCKETS_MAX    32u
#define METRIC_TRANSPORTS_MAX 16u

/* A transport with the copy method of the pair; empty: it has one only. */
struct metric_transport {
	char name[33], copy[33];
	uint64_t handovers, bytes, ns;
};

struct metrics {
	uint64_t counter[COUNTER__COUNT];
	uint64_t limit[LIMIT__COUNT];
	uint64_t finish[8];      /* by enum request_finish */
	uint64_t status[6][100]; /* HTTP status: hundreds, rest */
	uint64_t reject[REJECT__COUNT];
	struct {
		uint64_t count;
		double sum;
		uint64_t bucket[METRIC_BUCKETS_MAX]; /* not cumulative */
	} hist[HIST__COUNT];
	struct metric_transport transport[METRIC_TRANSPORTS_MAX];
};

void metrics_observe(struct metrics *m, enum metric_histogram id, double value);
void metrics_status(struct metrics *m, unsigned http_code);
/* More kinds than there is room for are not counted. */
void metrics_handover(struct metrics *m, struct bytes transport, struct bytes copy,
	uint64_t bytes, uint64_t ns);
/* A request ended now; and how many do per second, lately. */

/* All families, each with HELP and TYPE once. */
struct metrics_scene {
	const struct metrics *metrics;
	struct fleet *fleet;
	const struct requests *requests;
	const struct pairs *pairs;
	const char *model;
	const char *router;
	uint32_t connections;
	uint32_t open_requests;
	uint32_t template_children;
	uint64_t template_restarts;
	uint64_t memory_bytes;
	bool draining;
	bool socket_lost;
};
void metrics_text(const struct metrics_scene *s, struct sink *out);
/* Bounds of a histogram, ascending, without +Inf. */
const double *metrics_bounds(enum metric_histogram id, uint32_t *n);

#endif
