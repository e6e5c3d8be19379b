/* Stop strings by one Knuth-Morris-Pratt automaton each: constant state, every byte
 * looked at once, so the cut of the text cannot matter. */
#include "common/model/stop.h"

#include <string.h>

void stop_set_init(struct stop_set *set)
{
	*set = (struct stop_set){0};
}

/* Bytes of string s that the text ends with after one more byte. */
static uint16_t advance(
	const struct stop_set *set, uint32_t s, uint16_t done, uint8_t byte)
{
	while (done > 0 && (done == set->len[s] || set->text[s][done] != byte))
		done = set->back[s][done - 1];
	return set->text[s][done] == byte ? (uint16_t)(done + 1) : 0;
}

status stop_set_add(struct stop_set *set, struct bytes text, struct err *err)
{
	uint32_t s = set->n;
	uint16_t done = 0;

	if (text.len == 0)
		return err_set(err, ST_INVALID, "stop string %u is empty", s);
	if (text.len > STOP_BYTES_MAX)
		return err_set(err, ST_LIMIT, "stop string %u has %zu bytes, at most %u",
			s, text.len, STOP_BYTES_MAX);
	if (s == STOP_STRINGS_MAX)
		return err_set(
			err, ST_LIMIT, "more than %u stop strings", STOP_STRINGS_MAX);
	memcpy(set->text[s], text.at, text.len);
	set->len[s] = (uint16_t)text.len;
	set->back[s][0] = 0;
	for (size_t i = 1; i < text.len; i++) {
		done = advance(set, s, done, text.at[i]);
		set->back[s][i] = (uint8_t)done; /* at most i <= 255 */
	}
	set->n++;
	return ST_OK;
}

void stop_init(struct stop *s, const struct stop_set *set)
{
	*s = (struct stop){.set = set, .matched = -1};
}

/* Takes one byte; the length of the longest string that ends here, 0 when none does.
 * *open: the longest beginning of a string that the text ends with. */
static uint16_t take_byte(struct stop *s, uint8_t byte, uint16_t *open)
{
	uint16_t found = 0;

	*open = 0;
	for (uint32_t i = 0; i < s->set->n; i++) {
		s->done[i] = advance(s->set, i, s->done[i], byte);
		*open = MAX(*open, s->done[i]);
		if (s->done[i] == s->set->len[i] && s->done[i] > found) {
			found = s->done[i];
			s->matched = (int)i;
		}
	}
	return found;
}

/* Gives out the first n bytes of held text followed by text, keeps the rest of held. */
static void give_out(struct stop *s, struct bytes text, size_t n, struct sink *out)
{
	size_t from_held = MIN(n, (size_t)s->n_held);

	sink_put(out, s->held, from_held);
	sink_put(out, text.at, n - from_held);
	memmove(s->held, s->held + from_held, s->n_held - from_held);
	s->n_held = (uint16_t)(s->n_held - from_held);
}

int stop_feed(struct stop *s, struct bytes text, struct sink *out)
{
	size_t total = s->n_held + text.len, safe, given;
	uint16_t open = s->n_held;

	if (s->matched >= 0 || text.len == 0)
		return s->matched;
	for (size_t i = 0; i < text.len; i++) {
		uint16_t found = take_byte(s, text.at[i], &open);

		if (found > 0) {
			give_out(s, text, s->n_held + i + 1 - found, out);
			return s->matched;
		}
	}
	safe = total - open;
	given = safe > s->n_held ? safe - s->n_held : 0; /* bytes of text given out */
	give_out(s, text, safe, out);
	memcpy(s->held + s->n_held, text.at + given, text.len - given);
	s->n_held = open;
	return -1;
}

void stop_flush(struct stop *s, struct sink *out)
{
	if (s->matched < 0)
		sink_put(out, s->held, s->n_held);
	s->n_held = 0;
	memset(s->done, 0, sizeof(s->done));
}
