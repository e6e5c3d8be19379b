/* The text for Prometheus, read back line by line, and the numbers behind it. */
#include "request_rig.h"

#include "router/metrics.h"

#include <math.h>
#include <stdlib.h>

static struct metrics m;
static struct pairs pairs;

static struct sink text_of(struct rig *g, const char *model)
{
	struct metrics_scene scene = {
		.metrics = &m,
		.fleet = g->fleet,
		.requests = &g->set,
		.pairs = &pairs,
		.model = model,
		.router = "r0",
	};
	struct sink out;

	sink_init(&out, 1u << 20);
	metrics_text(&scene, &out);
	assert_false(out.full);
	return out;
}

static bool has_line(struct sink *out, const char *line)
{
	const char *at = sink_cstr(out);
	size_t n = strlen(line);

	for (; at != NULL; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (strncmp(at, line, n) == 0 && at[n] == '\n')
			return true;
	}
	return false;
}

#define CHECK_LINE(out, line)                                                            \
	do {                                                                             \
		if (!has_line((out), (line)))                                            \
			fail_msg("no line: %s", (line));                                 \
	} while (0)

static void reset(struct rig *g)
{
	memset(&m, 0, sizeof(m));
	rig_open(g);
}

static void close_all(struct rig *g, struct sink *out)
{
	sink_release(out);
	rig_close(g);
}

/* ---- format ---- */

struct family {
	char name[128];
	char kind[16];
};

static void copy_word(char *out, size_t size, const char *from, size_t n)
{
	assert_true(n < size);
	memcpy(out, from, n);
	out[n] = 0;
}

/* A sample belongs to the family whose TYPE came last. */
static void check_sample(const struct family *f, const char *line)
{
	size_t n = strcspn(line, "{ "), base = strlen(f->name);
	const char *value = strrchr(line, ' ');
	char *end;
	double v;

	assert_non_null(value);
	v = strtod(value + 1, &end);
	assert_true(*end == 0 && end != value + 1);
	assert_true(isfinite(v) && v >= 0);
	if (strncmp(line, f->name, base) != 0)
		fail_msg("%s below the TYPE of %s", line, f->name);
	if (strcmp(f->kind, "histogram") == 0)
		assert_true(strncmp(line + base, "_bucket", n - base) == 0 ||
			    strncmp(line + base, "_sum", n - base) == 0 ||
			    strncmp(line + base, "_count", n - base) == 0);
	else
		assert_int_equal(n, base);
}

static void every_line_is_well_formed_and_every_family_stands_once(void **state)
{
	struct family seen[256];
	struct sink out;
	size_t n_seen = 0;
	struct rig g;
	char *at, *next;

	(void)state;
	reset(&g);
	metrics_handover(&m, BYTES_STR("shm"), BYTES_STR(""), 1000, 10);
	metrics_status(&m, 200);
	out = text_of(&g, "demo");
	at = (char *)(uintptr_t)sink_cstr(&out);
	assert_int_equal(out.at[out.len - 1], '\n');
	for (; *at != 0; at = next) {
		next = strchr(at, '\n');
		*next++ = 0;
		if (strncmp(at, "# HELP ", 7) == 0) {
			size_t n = strcspn(at + 7, " ");

			assert_true(strlen(at + 7) > n + 1);
			copy_word(seen[n_seen].name, sizeof(seen[0].name), at + 7, n);
			for (size_t i = 0; i < n_seen; i++)
				assert_string_not_equal(seen[i].name, seen[n_seen].name);
		} else if (strncmp(at, "# TYPE ", 7) == 0) {
			size_t n = strcspn(at + 7, " ");

			assert_int_equal(n, strlen(seen[n_seen].name));
			assert_memory_equal(at + 7, seen[n_seen].name, n);
			copy_word(seen[n_seen].kind, sizeof(seen[0].kind), at + 8 + n,
				strlen(at + 8 + n));
			if (strcmp(seen[n_seen].kind, "counter") == 0)
				assert_string_equal(at + 7 + n - 6, "_total counter");
			n_seen++;
			assert_true(n_seen < COUNT(seen));
		} else {
			assert_true(n_seen > 0);
			check_sample(&seen[n_seen - 1], at);
		}
	}
	assert_true(n_seen > 40);
	close_all(&g, &out);
}

static void labels_are_escaped(void **state)
{
	struct sink out;
	struct rig g;

	(void)state;
	reset(&g);
	out = text_of(&g, "a\"b\\c\nd");
	CHECK_LINE(&out, "vllm:prompt_tokens_total{model_name=\"a\\\"b\\\\c\\nd\",engine="
			 "\"0\"} 0");
	close_all(&g, &out);
}

/* ---- numbers ---- */

static void a_value_falls_into_its_bucket_and_all_above(void **state)
{
	struct sink out;
	struct rig g;

	(void)state;
	reset(&g);
	metrics_observe(&m, HIST_ttft, 0.001); /* le: at most */
	metrics_observe(&m, HIST_ttft, 0.0011);
	metrics_observe(&m, HIST_ttft, 5000);
	metrics_observe(&m, HIST_ttft, NAN);
	out = text_of(&g, "demo");
#define TTFT(le, n)                                                                      \
	"vllm:time_to_first_token_seconds_bucket{model_name=\"demo\",engine=\"0\",le="   \
	"\"" le "\"} " n
	CHECK_LINE(&out, TTFT("0.001", "1"));
	CHECK_LINE(&out, TTFT("0.005", "2"));
	CHECK_LINE(&out, TTFT("2560", "2"));
	CHECK_LINE(&out, TTFT("+Inf", "3"));
	CHECK_LINE(&out, "vllm:time_to_first_token_seconds_count{model_name=\"demo\","
			 "engine=\"0\"} "
			 "3");
	close_all(&g, &out);
}

static void bounds_ascend_and_keep_those_of_vllm(void **state)
{
	static const double ttft[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,
		.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
	static const double e2e[] = {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40,
		50, 60, 120, 240, 480, 960, 1920, 7680};
	static const double itl[] = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75,
		1, 2.5, 5, 7.5, 10, 20, 40, 80};
	static const struct {
		enum metric_histogram id;
		const double *want;
		size_t n;
	} rows[] = {{HIST_ttft, ttft, COUNT(ttft)}, {HIST_e2e, e2e, COUNT(e2e)},
		{HIST_itl, itl, COUNT(itl)}};

	(void)state;
	for (unsigned id = 0; id < HIST__COUNT; id++) {
		uint32_t n;
		const double *b = metrics_bounds(id, &n);

		assert_in_range(n, 1, METRIC_BUCKETS_MAX - 1);
		for (uint32_t i = 1; i < n; i++)
			assert_true(b[i] > b[i - 1]);
	}
	for (size_t r = 0; r < COUNT(rows); r++)
		for (size_t k = 0; k < rows[r].n; k++) {
			uint32_t n, i = 0;
			const double *b = metrics_bounds(rows[r].id, &n);

			while (i < n && b[i] != rows[r].want[k])
				i++;
			assert_true(i < n);
		}
}

static void workers_and_handovers_show(void **state)
{
	struct sink out;
	struct rig g;

	(void)state;
	reset(&g);
	metrics_handover(&m, BYTES_STR("shm"), BYTES_STR(""), 3000000000u, NS_PER_S);
	metrics_handover(&m, BYTES_STR("shm"), BYTES_STR(""), 1000000000u, NS_PER_S);
	metrics_handover(&m, BYTES_STR("cuda_ipc"), BYTES_STR("gather/8"), 5, 0);
	metrics_handover(&m, BYTES_STR("cuda_ipc"), BYTES_STR("engine"), 6, 0);
	metrics_status(&m, 200);
	metrics_status(&m, 499);
	g.d->stats.v[STAT_decode_rows_max] = 7;
	g.d2->stats.v[STAT_decode_rows_max] = 9;
	g.d2->state = WORKER_SILENT;
	g.p->draining = true;
	g.d->pages_free = 25; /* of 100; the other worker's 100 are free */
	out = text_of(&g, "demo");
	CHECK_LINE(&out, "baton_handovers_total{transport=\"shm\",copy=\"\"} 2");
	CHECK_LINE(&out,
		"baton_handover_bytes_total{transport=\"shm\",copy=\"\"} 4000000000");
	CHECK_LINE(&out,
		"baton_handover_gigabytes_per_second{transport=\"shm\",copy=\"\"} 2");
	CHECK_LINE(&out, "baton_handover_bytes_total{transport=\"cuda_ipc\",copy="
			 "\"gather/8\"} 5");
	CHECK_LINE(&out, "baton_handover_bytes_total{transport=\"cuda_ipc\",copy="
			 "\"engine\"} 6");
	CHECK_LINE(&out, "baton_handover_gigabytes_per_second{transport=\"cuda_ipc\","
			 "copy=\"engine\"} 0");
	CHECK_LINE(&out, "baton_decode_rows_max 9");
	CHECK_LINE(&out, "baton_worker_decode_rows_max{worker=\"d0\",role=\"decode\"} 7");
	CHECK_LINE(&out, "baton_worker_state{worker=\"p0\",role=\"prefill\",state="
			 "\"draining\"} 1");
	CHECK_LINE(&out,
		"baton_worker_state{worker=\"p0\",role=\"prefill\",state=\"up\"} 0");
	CHECK_LINE(&out,
		"baton_worker_state{worker=\"d1\",role=\"decode\",state=\"silent\"} 1");
	CHECK_LINE(&out, "baton_http_answers_total{status=\"200\"} 1");
	CHECK_LINE(&out, "baton_http_answers_total{status=\"499\"} 1");
	CHECK_LINE(
		&out, "vllm:kv_cache_usage_perc{model_name=\"demo\",engine=\"0\"} 0.375");
	close_all(&g, &out);
}

static void requests_are_counted_where_they_are(void **state)
{
	struct request *queued, *decoding;
	struct sink out;
	struct rig g;

	(void)state;
	reset(&g);
	queued = rig_request(&g, 5);
	decoding = rig_request(&g, 5);
	rig_drive(&g, queued, RQ_QUEUED);
	rig_drive(&g, decoding, RQ_DECODE);
	out = text_of(&g, "demo");
	CHECK_LINE(&out, "vllm:num_requests_waiting{model_name=\"demo\",engine=\"0\"} 1");
	CHECK_LINE(&out, "vllm:num_requests_running{model_name=\"demo\",engine=\"0\"} 1");
	CHECK_LINE(&out, "baton_requests{state=\"decode\"} 1");
	request_cancel(queued);
	request_cancel(decoding);
	rig_free_all(&g, decoding);
	close_all(&g, &out);
}

/* More transports than there is room for: counted nowhere, harmful to nobody. */
static void too_many_transports_are_dropped(void **state)
{
	char name[16];

	(void)state;
	memset(&m, 0, sizeof(m));
	for (unsigned i = 0; i < METRIC_TRANSPORTS_MAX + 3; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		metrics_handover(&m, bytes_of_str(name), BYTES_STR(""), 1, 1);
	}
	assert_string_equal(m.transport[METRIC_TRANSPORTS_MAX - 1].name, "t15");
	assert_int_equal(m.transport[METRIC_TRANSPORTS_MAX - 1].handovers, 1);
}

static void a_status_that_there_is_not_is_not_counted(void **state)
{
	static struct metrics before;

	(void)state;
	memset(&m, 0, sizeof(m));
	metrics_status(&m, 700);
	assert_memory_equal(&m, &before, sizeof(m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_line_is_well_formed_and_every_family_stands_once),
		cmocka_unit_test(labels_are_escaped),
		cmocka_unit_test(a_value_falls_into_its_bucket_and_all_above),
		cmocka_unit_test(bounds_ascend_and_keep_those_of_vllm),
		cmocka_unit_test(workers_and_handovers_show),
		cmocka_unit_test(requests_are_counted_where_they_are),
		cmocka_unit_test(too_many_transports_are_dropped),
		cmocka_unit_test(a_status_that_there_is_not_is_not_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
