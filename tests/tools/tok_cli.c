// layers: base model
/* Encodes texts for comparison with another tokenizer (tests/golden/tok_oracle.py).
 *
 * usage: tok_cli MODEL_DIR
 * stdin:  "FLAGS LENGTH\n" and LENGTH bytes of text, again and again;
 *         FLAGS: a = TOK_ADDED, m = TOK_MASKED, - = none, b = decode: the text is
 *         ids with spaces between
 * stdout: for each text one line: its ids with spaces between, or "! status: reason";
 *         for b: "LENGTH\n", the text and "\n". */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/detok.h"
#include "common/model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void decode(const struct tokenizer *t, char *text)
{
	struct sink out;
	struct detok d;
	char *end;

	sink_init(&out, SIZE_MAX / 2);
	detok_init(&d, t, false);
	for (;;) {
		unsigned long id = strtoul(text, &end, 10);

		if (end == text)
			break;
		detok_feed(&d, (uint32_t)id, &out);
		text = end;
	}
	detok_flush(&d, &out);
	printf("%zu\n", out.len);
	fwrite(out.at, 1, out.len, stdout);
	putchar('\n');
	sink_release(&out);
}

static void encode(const struct tokenizer *t, const char *flags, struct bytes text)
{
	unsigned bits = 0;
	struct tok_ids ids;
	struct err err;

	bits |= strchr(flags, 'a') != NULL ? TOK_ADDED : 0u;
	bits |= strchr(flags, 'm') != NULL ? TOK_MASKED : 0u;
	tok_ids_init(&ids, SIZE_MAX);
	if (tokenizer_encode(t, text, bits, &ids, &err) != ST_OK)
		printf("! %s: %s", status_name(err.code), err.text);
	for (size_t i = 0; i < ids.n; i++)
		printf(i > 0 ? " %u" : "%u", ids.v[i]);
	putchar('\n');
	tok_ids_release(&ids);
}

int main(int argc, char **argv)
{
	struct tokenizer *t;
	struct err err;
	char flags[8];
	size_t n;

	if (argc != 2 || tokenizer_load(&t, argv[1], &err) != ST_OK) {
		fprintf(stderr, "tok_cli: %s\n", argc != 2 ? "MODEL_DIR?" : err.text);
		return 1;
	}
	while (scanf("%7s %zu", flags, &n) == 2 && getchar() == '\n') {
		char *text = mem_take(n + 1, 1);

		if (text == NULL || fread(text, 1, n, stdin) != n) {
			fprintf(stderr, "tok_cli: input ends inside a text\n");
			return 1;
		}
		if (flags[0] == 'b')
			decode(t, text);
		else
			encode(t, flags, (struct bytes){(const uint8_t *)text, n});
		fflush(stdout);
		mem_give(text);
	}
	tokenizer_destroy(t);
	return 0;
}
