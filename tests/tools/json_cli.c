// layers: base
/* The verdict of the JSON reader on texts, and what the writer makes of them, for
 * comparison with another reader (tests/golden/test_json_oracle.py).
 *
 * usage: json_cli [python]      python: NaN and infinities are numbers
 * stdin:  "LENGTH\n" and LENGTH bytes of text, again and again
 * stdout: for each text "ok LENGTH\n", the rewritten text and "\n"; or
 *         "refused LENGTH\n", the reason and "\n" */
#include "common/base/json.h"
#include "common/base/json_write.h"
#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

static void answer(const char *verdict, struct bytes text)
{
	printf("%s %zu\n", verdict, text.len);
	fwrite(text.at, 1, text.len, stdout);
	putchar('\n');
}

static void rewrite(uint8_t *text, size_t len, const struct json_limits *limits)
{
	struct json_doc doc;
	struct json_out w;
	struct sink out;
	struct err err;

	if (json_read(&doc, text, len, limits, &err) != ST_OK) {
		answer("refused", bytes_of_str(err.text));
		return;
	}
	sink_init(&out, SIZE_MAX / 2);
	json_out_init(&w, &out);
	json_put(&w, doc.values);
	answer("ok", sink_bytes(&out));
	sink_release(&out);
	json_release(&doc);
}

int main(int argc, char **argv)
{
	struct json_limits limits = {JSON_DEPTH_MAX, UINT32_MAX, false};
	size_t n;

	limits.python_literals = argc > 1 && strcmp(argv[1], "python") == 0;
	while (scanf("%zu", &n) == 1 && getchar() == '\n') {
		uint8_t *text = mem_take(n + 1, 1);

		if (text == NULL || fread(text, 1, n, stdin) != n) {
			fprintf(stderr, "json_cli: input ends inside a text\n");
			return 1;
		}
		rewrite(text, n, &limits);
		mem_give(text);
	}
	return 0;
}
