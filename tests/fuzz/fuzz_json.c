// layers: base
/* Any bytes as JSON. The first byte chooses the limits. What is accepted is the same
 * after it was written and read again; what is refused says a place; nothing is left. */
#include "common/base/json.h"
#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_same(const struct json *a, const struct json *b)
{
	check(a->span == b->span);
	for (uint32_t i = 0; i < a->span; i++) {
		bool is_text = a[i].kind == JSON_STRING || a[i].kind == JSON_NUMBER;

		check(a[i].kind == b[i].kind && a[i].n == b[i].n &&
			a[i].span == b[i].span && a[i].len == b[i].len);
		check(!is_text || memcmp(a[i].at, b[i].at, a[i].len) == 0);
	}
}

/* Every way to a value leads to the same one. */
static void check_values(const struct json *root)
{
	for (uint32_t i = 0; i < root->span; i++) {
		const struct json *v = root + i;
		char shown[20];
		uint32_t n = 0;
		int64_t whole;
		double d;

		check(v->span >= 1 && v->span <= root->span - i);
		check(strlen(json_show(v, shown, sizeof(shown))) < sizeof(shown));
		check(utf8_valid_len(bytes_of_str(shown)) == strlen(shown));
		if (json_i64(v, &whole))
			check(json_f64(v, &d) && d == (double)whole);
		if (json_is(v, JSON_STRING))
			check(utf8_valid_len(json_bytes(v)) == v->len &&
				v->at[v->len] == 0);
		json_each(item, v)
		{
			check(n > 100 || json_item(v, n) == item);
			n++;
		}
		json_each_member(name, v)
		{
			check(json_text(name) == NULL ||
				json_member(v, json_text(name)) == name + 1);
			n++;
		}
		check(n == json_count(v));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_limits limits = {JSON_DEPTH_MAX, UINT32_MAX, false};
	struct json_doc doc, again;
	struct json_out w;
	struct sink out;
	struct err err;
	uint8_t *text;

	if (size == 0)
		return 0;
	limits.python_literals = data[0] & 1;
	if (data[0] & 2)
		limits = (struct json_limits){4, 20, limits.python_literals};
	text = (uint8_t *)mem_dup(data + 1, size - 1);
	check(text != NULL);
	if (json_read(&doc, text, size - 1, &limits, &err) != ST_OK) {
		check(doc.values == NULL && doc.tables == NULL);
		check(strncmp(err.text, "JSON line ", 10) == 0);
		check(utf8_valid_len(bytes_of_str(err.text)) == strlen(err.text));
	} else {
		check_values(doc.values);
		sink_init(&out, SIZE_MAX / 2);
		json_out_init(&w, &out);
		json_put(&w, doc.values);
		check(!out.full && sink_cstr(&out) != NULL);
		check(json_read(&again, out.at, out.len, &limits, &err) == ST_OK);
		check_same(doc.values, again.values);
		json_release(&again);
		sink_release(&out);
		json_release(&doc);
	}
	mem_give(text);
	check(mem_taken() == 0);
	return 0;
}
