/* Copies of several ranks on one lane: how pieces are grouped, which failure is kept, and
 * that every device that was used is waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/xfer/copier.h"
#include <string.h>

#define RANKS 3u

/* A device that writes down what it is asked, a line of text per test. */
struct stream {
	uint32_t rank;
};

struct fake {
	struct backend backend; /* first */
	uint32_t rank;
};

static char said[1024];
static int fails_copy = -1, fails_sync = -1; /* rank */

static void say(const char *what, uint32_t rank, uint32_t n)
{
	size_t at = strlen(said);

	snprintf(said + at, sizeof(said) - at, "%s%u:%u ", what, rank, n);
}

static status stream_create(struct backend *b, struct stream **out, struct err *err)
{
	(void)err;
	*out = mem_take(1, sizeof(**out));
	assert_non_null(*out);
	(*out)->rank = ((struct fake *)b)->rank;
	return ST_OK;
}

static void stream_destroy(struct stream *s)
{
	mem_give(s);
}

static status stream_sync(struct stream *s, struct err *err)
{
	say("sync", s->rank, 0);
	return (int)s->rank == fails_sync
		       ? err_set(err, ST_DEVICE, "sync of rank %u", s->rank)
		       : ST_OK;
}

static status copy_list(
	struct stream *s, const struct copy_piece *pieces, uint32_t n, struct err *err)
{
	(void)pieces;
	say("copy", s->rank, n);
	return (int)s->rank == fails_copy
		       ? err_set(err, ST_DEVICE, "copy of rank %u", s->rank)
		       : ST_OK;
}

static status copy_list_by(struct stream *s, const struct copy_method *how,
	const struct copy_piece *pieces, uint32_t n, struct err *err)
{
	(void)pieces;
	(void)err;
	say("by", s->rank, n + how->blocks);
	return ST_OK;
}

static const struct backend_ops ops = {.stream_create = stream_create,
	.stream_destroy = stream_destroy,
	.stream_sync = stream_sync,
	.copy_list = copy_list,
	.copy_list_by = copy_list_by};
static struct fake fakes[RANKS];
static struct xfer_side side;
static struct lanes *lanes;

static int set_up(void **state)
{
	struct err err;

	(void)state;
	side = (struct xfer_side){.n_ranks = RANKS};
	for (uint32_t r = 0; r < RANKS; r++) {
		fakes[r] = (struct fake){.backend = {.ops = &ops}, .rank = r};
		side.backend[r] = &fakes[r].backend;
	}
	said[0] = 0;
	fails_copy = fails_sync = -1;
	return lanes_create(&lanes, &side, &err) != ST_OK;
}

static int tear_down(void **state)
{
	(void)state;
	lanes_destroy(lanes);
	return 0;
}

/* One piece for each digit: of that rank. */
static status copy(const char *ranks, const struct copy_method *how, struct err *err)
{
	struct copier c;

	copier_begin(&c, &side, lanes, err);
	for (const char *p = ranks; *p != 0; p++)
		copier_add(&c, (uint32_t)(*p - '0'), how,
			(struct copy_piece){.src = "", .dst = NULL, .bytes = 1});
	return copier_end(&c);
}

static void neighbours_of_one_rank_are_one_list(void **state)
{
	const struct copy_method how = {COPY_GATHER, 100};
	struct err err;

	(void)state;
	assert_int_equal(ST_OK, copy("2200002", NULL, &err));
	assert_string_equal(said, "copy2:2 copy0:4 copy2:1 sync0:0 sync2:0 ");
	said[0] = 0;
	assert_int_equal(ST_OK, copy("11", &how, &err));
	assert_string_equal(said, "by1:102 sync1:0 ");
	said[0] = 0;
	assert_int_equal(ST_OK, copy("", NULL, &err));
	assert_string_equal(said, "");
}

static void a_long_list_goes_in_parts(void **state)
{
	char ranks[COPIER_PIECES + 2];
	struct err err;

	(void)state;
	memset(ranks, '1', sizeof(ranks));
	ranks[COPIER_PIECES + 1] = 0;
	assert_int_equal(ST_OK, copy(ranks, NULL, &err));
	assert_string_equal(said, "copy1:128 copy1:1 sync1:0 ");
}

static void the_first_failure_is_kept_and_every_used_device_waited_for(void **state)
{
	struct err err;

	(void)state;
	fails_copy = 1;
	fails_sync = 0;
	assert_int_equal(ST_DEVICE, copy("0112", NULL, &err));
	assert_string_equal(err.text, "copy of rank 1");
	/* What follows the failure is not begun; what was begun is over. */
	assert_string_equal(said, "copy0:1 copy1:2 sync0:0 sync1:0 ");
	said[0] = 0;
	fails_copy = -1;
	assert_int_equal(ST_DEVICE, copy("012", NULL, &err));
	assert_string_equal(err.text, "sync of rank 0");
	assert_string_equal(said, "copy0:1 copy1:1 copy2:1 sync0:0 sync1:0 sync2:0 ");
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(neighbours_of_one_rank_are_one_list),
		T(a_long_list_goes_in_parts),
		T(the_first_failure_is_kept_and_every_used_device_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
