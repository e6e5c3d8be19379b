// layers: wire base
/* A type byte and a body, as the bus delivers them: what decodes must encode and decode
 * to the same bytes. */
#include "common/base/mem.h"
#include "common/wire/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const struct wire_msg *m, const void *msg, struct sink *out)
{
	struct err err;

	sink_init(out, WIRE_MAX_BYTES);
	if (wire_encode(m, msg, out, &err) != ST_OK)
		abort();
}

/* The first encoding is the canonical form of what the input meant (unknown keys and
 * long headers are gone); decoding and encoding it must change nothing. */
static void check_again(const struct wire_msg *m, const void *msg, void *again)
{
	struct sink first, second;
	struct err err;

	encode(m, msg, &first);
	if (wire_decode(m, sink_bytes(&first), again, &err) != ST_OK)
		abort();
	encode(m, again, &second);
	if (!bytes_eq(sink_bytes(&first), sink_bytes(&second)))
		abort();
	sink_release(&second);
	sink_release(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct wire_msg *m = size > 0 ? wire_find(data[0]) : NULL;
	struct err err;
	void *msg, *again;

	if (m == NULL)
		return 0;
	msg = malloc(m->size);
	again = malloc(m->size);
	if (msg == NULL || again == NULL)
		abort();
	if (wire_decode(m, (struct bytes){data + 1, size - 1}, msg, &err) == ST_OK)
		check_again(m, msg, again);
	free(again);
	free(msg);
	if (mem_taken() != 0)
		abort();
	return 0;
}
