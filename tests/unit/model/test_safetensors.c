/* safetensors files: what the format allows is read, everything else is refused with
 * file, tensor and reason. */
#include "common/model/safetensors.h"

#include "common/base/clock.h"
#include "unit/model/checkpoint.h"

#include <string.h>

/* A file of this header text and data of `data` bytes, on the heap. */
static struct bytes make_file(const char *header, size_t text_bytes, size_t data)
{
	uint8_t *at = calloc(8 + text_bytes + data, 1);

	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)((uint64_t)text_bytes >> 8 * i);
	memcpy(at + 8, header, text_bytes);
	for (size_t i = 0; i < data; i++)
		at[8 + text_bytes + i] = (uint8_t)i;
	return (struct bytes){at, 8 + text_bytes + data};
}

static void release(struct bytes file)
{
	free((void *)(uintptr_t)file.at);
}

#define T(dtype, shape, range)                                                           \
	"{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"

static const struct {
	const char *header;
	size_t data;
	const char *text;
} malformed[] = {
	{"", 0, "header ends where '{' is expected"},
	{"[]", 0, "header byte 0: '{' expected"},
	{"{", 0, "header ends where a tensor name is expected"},
	{"{\"a\"", 0, "header ends where ':' is expected"},
	{"{\"a\":1}", 0, "tensor a: header byte 5: '{' expected"},
	{"{\"a\":" T("F32", "1", "0,4"), 4, "header ends where ',' or '}' is expected"},
	{"{\"a\":" T("F32", "1", "0,4") "}x", 4, "nothing more expected"},
	{"{\"a\":" T("F32", "1", "0,4") ",}", 4, "a tensor name expected"},
	{"{\"a\":" T("F32", "1", "0,4") ",\"a\":" T("F32", "1", "4,8") "}", 8,
		"tensor a: is named twice"},
	{"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0,
		"tensor a: dtype is given twice"},
	{"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is given twice"},
	{"{\"__metadata__\":{\"a\":1}}", 0, "a string of __metadata__ expected"},
	{"{\"__metadata__\":{\"a\":\"b}}", 0, "header ends where a closing quote"},
	{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
		"tensor a: data_offsets is missing"},
	{"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4,
		"tensor a: shape is missing"},
	{"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
		"tensor a: dtype is missing"},
	{"{\"a\":{\"type\":\"F32\"}}", 0, "tensor a: unknown field \"type\""},
	{"{\"a\":" T("F33", "1", "0,4") "}", 4, "tensor a: unknown dtype \"F33\""},
	{"{\"a\":" T("f32", "1", "0,4") "}", 4, "tensor a: unknown dtype \"f32\""},
	{"{\"a\":{\"dtype\":4}}", 0, "dtype expected"},
	{"{\"a\":" T("F32", "-1", "0,4") "}", 4,
		"tensor a: a dimension of shape is negative"},
	{"{\"a\":" T("F32", "1.5", "0,4") "}", 4,
		"a dimension of shape is not an integer"},
	{"{\"a\":" T("F32", "1e0", "0,4") "}", 4,
		"a dimension of shape is not an integer"},
	{"{\"a\":" T("F32", "1,", "0,4") "}", 4, "a dimension of shape expected"},
	{"{\"a\":" T("F32", "1", "-4,4") "}", 4, "tensor a: data_offsets[0] is negative"},
	{"{\"a\":" T("F32", "1", "4,0") "}", 4, "data_offsets 4..0 are reversed"},
	{"{\"a\":" T("F32", "1", "0") "}", 4, "',' expected"},
	{"{\"a\":" T("F32", "1", "0,4,8") "}", 4, "']' expected"},
	{"{\"a\":" T("F32", "1", "4,8") "}", 4, "data_offsets 4..8 in 4 bytes of data"},
	{"{\"a\":" T("F32", "2", "0,8") "}", 4, "data_offsets 0..8 in 4 bytes of data"},
	{"{\"a\":" T("F32", "1", "18446744073709551612,18446744073709551615") "}", 4,
		"in 4 bytes of data"},
	{"{\"a\":" T("F32", "1", "0,18446744073709551616") "}", 4,
		"data_offsets[1] does not fit 64 bits"},
	{"{\"a\":" T("F32", "2", "0,4") "}", 4, "need 8 bytes, data_offsets hold 4"},
	{"{\"a\":" T("F32", "4294967296,4294967296", "0,4") "}", 4,
		"the product of the shape overflows"},
	{"{\"a\":" T("I64", "288230376151711744", "0,0") "}", 0, "overflows"},
	{"{\"a\":" T("F4", "3", "0,1") "}", 1, "12 bits of F4 do not end on a byte"},
	{"{\"a\":" T("U8", "8", "0,8") ",\"b\":" T("U8", "8", "4,12") "}", 12,
		"tensor b: overlaps tensor a at byte 4"},
	{"{\"a\":" T("U8", "4", "8,12") ",\"b\":" T("U8", "8", "0,8") ",\"c\":" T(
		 "U8", "4", "6,10") "}",
		12, "tensor c: overlaps tensor b at byte 6"},
	{"{\"a\":" T("U8", "8", "0,8") ",\"b\":" T("U8", "0", "4,4") "}", 8,
		"tensor b: overlaps tensor a"},
	{"{\"a\":" T("U8", "4", "0,4") ",\"b\":" T("U8", "4", "8,12") "}", 12,
		"tensor b: the 4 bytes before it belong to no tensor"},
	{"{\"a\":" T("U8", "4", "4,8") "}", 8, "tensor a: the 4 bytes before it"},
	{"{\"a\":" T("U8", "4", "0,4") "}", 9, "5 bytes after the last tensor"},
	{"{}", 1, "1 bytes after the last tensor"},
	{"{\"a\\n\":" T("U8", "4", "0,4") "}", 4, "contains byte 0x5c"},
	{"{\"a\x01\":" T("U8", "4", "0,4") "}", 4, "contains byte 0x01"},
	{"{\"\xc3\xa9\":" T("U8", "4", "0,4") "}", 4, "contains byte 0xc3"},
};

static void refuses_malformed_headers(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(malformed); i++) {
		const char *h = malformed[i].header;
		struct bytes file = make_file(h, strlen(h), malformed[i].data);
		struct st_index *ix = NULL;

		CHECK_REFUSED(h, ST_INVALID, malformed[i].text,
			st_parse(&ix, file, file.len, &err));
		release(file);
	}
}

static void refuses_beyond_its_limits(void **state)
{
	struct st_index *ix = NULL;
	uint8_t huge[16] = {0, 0, 0, 0, 1};
	char name[400], header[600];
	struct bytes file;

	(void)state;
	CHECK_REFUSED("huge", ST_LIMIT,
		"header of 4294967296 bytes, the limit is 268435456",
		st_parse(&ix, (struct bytes){huge, 16}, UINT64_MAX, &err));
	memset(huge, 0xff, 8);
	CHECK_REFUSED("2^64", ST_LIMIT, "header of 18446744073709551615 bytes",
		st_parse(&ix, (struct bytes){huge, 16}, 16, &err));
	CHECK_REFUSED("short", ST_INVALID, "7 bytes are too short",
		st_parse(&ix, (struct bytes){huge, 7}, 7, &err));
	memset(huge, 0, 8);
	huge[0] = 9;
	CHECK_REFUSED("file", ST_INVALID, "header of 9 bytes in a file of 16",
		st_parse(&ix, (struct bytes){huge, 16}, 16, &err));
	CHECK_REFUSED("here", ST_INVALID, "header of 9 bytes, 8 are here",
		st_parse(&ix, (struct bytes){huge, 16}, 1000, &err));
	memset(name, 'n', sizeof(name));
	snprintf(header, sizeof(header), "{\"%.201s\":" T("U8", "0", "0,0") "}", name);
	file = make_file(header, strlen(header), 0);
	CHECK_REFUSED("name", ST_LIMIT, "a tensor name is longer than 200 bytes",
		st_parse(&ix, file, file.len, &err));
	release(file);
	file = make_file("{\"a\":" T("U8", "1,1,1,1,1,1,1", "0,1") "}",
		strlen("{\"a\":" T("U8", "1,1,1,1,1,1,1", "0,1") "}"), 1);
	CHECK_REFUSED("dims", ST_LIMIT, "shape of more than 6 dimensions",
		st_parse(&ix, file, file.len, &err));
	release(file);
}

static const char good[] =
	" {\"__metadata__\" : {\"format\":\"pt\", \"q\\\"\":\"\\\\\"}, \"b\":" T(
		"BF16", "2,3", "4,16") ",\n\"empty\":" T("F32", "5,0",
		"16,16") ",\"a\":" T("F32", "", "0,4") ",\"f4\":" T("F4", "4",
		"16,18") ",\"e8\":" T("F8_E8M0", "1", "18,19") "}  ";

static void reads_what_the_format_allows(void **state)
{
	struct bytes file = make_file(good, strlen(good), 19);
	struct st_index *ix = NULL;
	const struct st_tensor *t;

	(void)state;
	CHECK_OK(st_parse(&ix, file, file.len, &err));
	assert_int_equal(st_count(ix), 5);
	t = st_find(ix, "b");
	assert_non_null(t);
	assert_int_equal(t->dtype, STD_BF16);
	assert_int_equal(t->n_dims, 2);
	assert_int_equal(t->dim[0], 2);
	assert_int_equal(t->dim[1], 3);
	assert_int_equal(t->bytes, 12);
	assert_int_equal(t->begin, 8 + strlen(good) + 4);
	assert_int_equal(st_find(ix, "a")->n_dims, 0);
	assert_int_equal(st_find(ix, "empty")->bytes, 0);
	assert_int_equal(st_find(ix, "f4")->bytes, 2);
	assert_null(st_find(ix, "c"));
	assert_null(st_find(ix, "__metadata__"));
	st_close(ix);
	release(file);
}

/* Heap copies, so that a sanitizer sees one byte over. */
static void every_truncation_is_refused(void **state)
{
	struct bytes file = make_file(good, strlen(good), 19);
	struct st_index *ix = NULL;
	struct err err;

	(void)state;
	for (size_t cut = 0; cut < file.len; cut++) {
		uint8_t *copy = malloc(cut + (cut == 0));

		memcpy(copy, file.at, cut);
		assert_int_not_equal(
			st_parse(&ix, (struct bytes){copy, cut}, cut, &err), ST_OK);
		free(copy);
	}
	release(file);
}

static void write_shard(const struct folder *f, const char *file, const char *a,
	const char *b, uint32_t value)
{
	struct st_out_tensor t[2] = {
		{.name = a, .dtype = STD_U32, .n_dims = 1, .dim = {1}, .data = &value},
		{.name = b, .dtype = STD_U32, .n_dims = 1, .dim = {1}, .data = &value},
	};

	CHECK_OK(st_write(folder_file(f, file), t, b != NULL ? 2 : 1, &err));
}

static void write_text(const struct folder *f, const char *file, const char *text)
{
	folder_write(f, file, text, strlen(text));
}

#define INDEX "model.safetensors.index.json"

/* The index assigns every tensor; copies elsewhere and other files are not read. */
static void shards_follow_the_index(void **state)
{
	static const struct {
		const char *name;
		uint32_t value;
	} want[] = {{"a", 1}, {"b", 1}, {"c", 2}};
	struct folder f;
	struct st_index *ix = NULL;
	uint32_t value = 0;

	(void)state;
	folder_create(&f);
	write_shard(&f, "s1.safetensors", "a", "b", 1);
	write_shard(&f, "s2.safetensors", "c", "a", 2);
	write_shard(&f, "model.safetensors", "a", "z", 3);
	write_text(&f, INDEX,
		"{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"s1."
		"safetensors\","
		"\"b\":\"s1.safetensors\",\"c\":\"s2.safetensors\"}}");
	CHECK_OK(st_open(&ix, f.path, &err));
	assert_int_equal(st_count(ix), 3);
	for (size_t i = 0; i < COUNT(want); i++) {
		const struct st_tensor *t = st_find(ix, want[i].name);

		assert_non_null(t);
		CHECK_OK(st_read(ix, t, 0, &value, 4, &err));
		assert_int_equal(value, want[i].value);
		assert_string_equal(st_file_name(ix, t->file),
			want[i].value == 1 ? "s1.safetensors" : "s2.safetensors");
	}
	assert_null(st_find(ix, "z"));
	st_close(ix);
	folder_remove(&f);
}

static void refuses_broken_folders(void **state)
{
	static const struct {
		const char *index;
		status code;
		const char *text;
	} rows[] = {
		{"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s9.safetensors\"}}",
			ST_IO, "/s9.safetensors: open: No such file or directory"},
		{"{\"weight_map\":{\"a\":\"s1.safetensors\",\"x\":\"s1.safetensors\"}}",
			ST_INVALID, INDEX ": tensor x is not in s1.safetensors"},
		{"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", ST_INVALID,
			"\"../s1.safetensors\" is not a file name in the same folder"},
		{"{\"weight_map\":{\"a\":\"\"}}", ST_INVALID, "is not a file name"},
		{"{\"weight_map\":{\"a\":7}}", ST_INVALID, "tensor a: no file name"},
		{"{\"weight_map\":{\"a\":\"s1.safetensors\",\"a\":\"s1.safetensors\"}}",
			ST_INVALID, "the name \"a\" stands there twice"},
		{"{\"weight_map\":[]}", ST_INVALID, "no object weight_map"},
		{"{\"weight_map\":", ST_INVALID, INDEX ": JSON line 1"},
		{"{\"weight_map\":{\"a\":\"bad.safetensors\"}}", ST_INVALID,
			"bad.safetensors: 5 bytes after the last tensor"},
		{"{\"weight_map\":{\"a\":\"short.safetensors\"}}", ST_INVALID,
			"short.safetensors: 3 bytes are too short for a header"},
		{"{\"weight_map\":{\"a\":\"dir.safetensors\"}}", ST_INVALID,
			"dir.safetensors: not a regular file"},
	};
	static const char bad[] = "{\"a\":" T("U8", "4", "0,4") "}";
	struct bytes file = make_file(bad, strlen(bad), 9);
	struct folder f;
	struct st_index *ix = NULL;

	(void)state;
	folder_create(&f);
	CHECK_REFUSED("empty", ST_IO, "/model.safetensors: open: No such file",
		st_open(&ix, f.path, &err));
	write_shard(&f, "s1.safetensors", "a", NULL, 1);
	folder_write(&f, "bad.safetensors", file.at, file.len);
	write_text(&f, "short.safetensors", "abc");
	assert_int_equal(mkdir(folder_file(&f, "dir.safetensors"), 0755), 0);
	for (size_t i = 0; i < COUNT(rows); i++) {
		write_text(&f, INDEX, rows[i].index);
		CHECK_REFUSED(rows[i].index, rows[i].code, rows[i].text,
			st_open(&ix, f.path, &err));
	}
	folder_remove(&f);
	release(file);
}

/* A file cut after it was opened is an error of the read, not zeros. */
static void a_shrunk_file_is_noticed(void **state)
{
	static uint32_t big[1024];
	struct st_out_tensor t = {
		.name = "big", .dtype = STD_U32, .n_dims = 1, .dim = {1024}, .data = big};
	struct folder f;
	struct st_index *ix = NULL;

	(void)state;
	folder_create(&f);
	CHECK_OK(st_write(folder_file(&f, "x.safetensors"), &t, 1, &err));
	CHECK_OK(st_open_file(&ix, folder_file(&f, "x.safetensors"), &err));
	assert_int_equal(truncate(folder_file(&f, "x.safetensors"), 2000), 0);
	CHECK_REFUSED("shrunk", ST_IO,
		"x.safetensors: tensor big: the file ends at byte 2000",
		st_read(ix, st_find(ix, "big"), 0, big, sizeof(big), &err));
	st_close(ix);
	CHECK_REFUSED("again", ST_INVALID, "data_offsets 0..4096 in",
		st_open_file(&ix, folder_file(&f, "x.safetensors"), &err));
	folder_remove(&f);
}

/* The largest published checkpoint has 124,000 tensors in headers of 7 MB; both the
 * parser and the map must be linear in that. */
static void a_large_header_is_read_at_once(void **state)
{
	enum { N = 124000 };
	size_t cap = (size_t)N * 160, len = 1;
	char *text = malloc(cap);
	struct st_index *ix = NULL;
	struct bytes file;
	uint64_t start;

	(void)state;
	text[0] = '{';
	for (int i = 0; i < N; i++)
		len += (size_t)snprintf(text + len, cap - len,
			"%s\"model.language_model.layers.%d.mlp.experts.%d.gate_proj."
			"weight\":"
			"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%d,%d]}",
			i > 0 ? "," : "", i / 2048, i % 2048, 4 * i, 4 * i + 4);
	text[len++] = '}';
	file = make_file(text, len, (size_t)N * 4);
	start = clock_ns();
	CHECK_OK(st_parse(&ix, file, file.len, &err));
	assert_int_equal(st_count(ix), N);
	assert_non_null(st_find(
		ix, "model.language_model.layers.60.mlp.experts.1119.gate_proj.weight"));
	/* Measured 0.03 s; a quadratic map or parser needs minutes. */
	assert_true(clock_ns() - start < UINT64_C(3000000000));
	st_close(ix);
	release(file);
	free(text);
}

static void the_writer_refuses_names_that_cannot_be_read(void **state)
{
	uint8_t byte = 0;
	struct st_out_tensor t = {
		.name = "a\"b", .dtype = STD_U8, .n_dims = 1, .dim = {1}, .data = &byte};

	(void)state;
	CHECK_REFUSED("quote", ST_INVALID, "byte 0x22 at 1",
		st_write("/tmp/baton_never_written", &t, 1, &err));
	t.name = "";
	CHECK_REFUSED("empty", ST_INVALID, "a tensor name of 0 bytes",
		st_write("/tmp/baton_never_written", &t, 1, &err));
	t.name = "a";
	CHECK_REFUSED("folder", ST_IO, "/nowhere/x: open: No such file",
		st_write("/nowhere/x", &t, 1, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_malformed_headers),
		cmocka_unit_test(refuses_beyond_its_limits),
		cmocka_unit_test(reads_what_the_format_allows),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(shards_follow_the_index),
		cmocka_unit_test(refuses_broken_folders),
		cmocka_unit_test(a_shrunk_file_is_noticed),
		cmocka_unit_test(a_large_header_is_read_at_once),
		cmocka_unit_test(the_writer_refuses_names_that_cannot_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
