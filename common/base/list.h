/* The one list of the tree: doubly linked through nodes that stand in the entries, so
 * that adding allocates nothing and an entry leaves by itself. A zeroed list is empty, a
 * zeroed node is in none. Entries are the owner's; one thread. */
#ifndef COMMON_BASE_LIST_H
#define COMMON_BASE_LIST_H
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list_node {
	struct list_node *next, *prev;
	struct list *in; /* NULL: none */
};

struct list {
	struct list_node *first, *last;
	uint32_t n;
};

static inline void list_add_between(struct list *l, struct list_node *node,
	struct list_node *prev, struct list_node *next)
{
	assert(node->in == NULL);
	*node = (struct list_node){.next = next, .prev = prev, .in = l};
	*(prev != NULL ? &prev->next : &l->first) = node;
	*(next != NULL ? &next->prev : &l->last) = node;
	l->n++;
}

static inline void list_add(struct list *l, struct list_node *node)
{
	list_add_between(l, node, l->last, NULL);
}

static inline void list_add_first(struct list *l, struct list_node *node)
{
	list_add_between(l, node, NULL, l->first);
}

/* Nothing happens if it is in no list. */
static inline void list_remove(struct list_node *node)
{
	struct list *l = node->in;

	if (l == NULL)
		return;
	*(node->prev != NULL ? &node->prev->next : &l->first) = node->next;
	*(node->next != NULL ? &node->next->prev : &l->last) = node->prev;
	l->n--;
	*node = (struct list_node){0};
}

/* The entry around a node at this offset; NULL of NULL. */
static inline void *list_entry(const struct list_node *node, size_t offset)
{
	return node == NULL ? NULL : (char *)(uintptr_t)node - offset;
}

#define list_first(l, type, node) ((type *)list_entry((l)->first, offsetof(type, node)))
#define list_next(e, type, node)                                                         \
	((type *)list_entry((e)->node.next, offsetof(type, node)))
/* In order. The entry in hand may leave or be freed, no other. */
#define list_each(e, l, type, node)                                                      \
	for (type *e = list_first(l, type, node), *e##_next;                             \
		e != NULL && (e##_next = list_next(e, type, node), true); e = e##_next)

#endif
