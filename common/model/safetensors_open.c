/* A checkpoint folder: one file, or the shards that its index names. */
#include "common/model/safetensors_impl.h"

#include "common/base/log.h"
#include "common/model/json_file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SINGLE_NAME     "model.safetensors"
#define SHARD_NAME      "model-%05u-of-%05u.safetensors"
#define SHARD_SCAN      "model-%5u-of-%5u.safetensors"
/* 124,000 tensors make an index of about 12 MB. */
#define SHARD_INDEX_MAX ((uint64_t)256 << 20)
/* The largest published checkpoint has 94 shards. */
#define SHARDS_MAX      1024u
#define PATH_BYTES      4096

/* A shard's name is a plain file name: an index cannot point out of its folder. */
static status check_shard_name(
	const char *tensor, const struct json *shard, struct err *err)
{
	const char *name = json_text(shard);

	if (name == NULL)
		return err_set(err, ST_INVALID,
			"weight_map: tensor %.200s: no file name (line %u)", tensor,
			shard->line);
	if (name[0] == 0 || name[0] == '.' || strchr(name, '/') != NULL ||
		strlen(name) > ST_NAME_MAX)
		return err_set(err, ST_INVALID,
			"weight_map: tensor %.100s: \"%.100s\" is not a file name in the "
			"same folder (line %u)",
			tensor, name, shard->line);
	return ST_OK;
}

static uint32_t find_file(const struct st_index *ix, const char *name)
{
	uint32_t i = 0;

	while (i < ix->n_files && strcmp(ix->files[i].name, name) != 0)
		i++;
	return i;
}

/* Keep what the index assigns to this shard; a stale copy elsewhere is not read. */
static void keep_assigned(struct st_index *ix, uint32_t first,
	const struct json *weight_map, const char *shard)
{
	uint32_t kept = first;

	for (uint32_t i = first; i < ix->n_tensors; i++) {
		if (json_equals(json_member(weight_map, ix->tensors[i].name), shard))
			ix->tensors[kept++] = ix->tensors[i];
	}
	ix->n_tensors = kept;
}

static status open_shards(struct st_index *ix, const char *dir,
	const struct json *weight_map, struct err *err)
{
	char path[PATH_BYTES];
	const char *name;
	uint32_t first;
	status st;

	json_each_member(tensor, weight_map)
	{
		st = check_shard_name((const char *)tensor->at, tensor + 1, err);
		if (st != ST_OK)
			return err_wrap(err, SHARD_INDEX_NAME);
		name = json_text(tensor + 1);
		if (find_file(ix, name) < ix->n_files)
			continue;
		if (ix->n_files == SHARDS_MAX)
			return err_set(err, ST_LIMIT,
				SHARD_INDEX_NAME ": more than %u files", SHARDS_MAX);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		first = ix->n_tensors;
		st = st_index_add(ix, path, name, err);
		if (st != ST_OK)
			return err_wrap(err, SHARD_INDEX_NAME " names %s", name);
		keep_assigned(ix, first, weight_map, name);
	}
	return ST_OK;
}

static status check_assigned(
	const struct st_index *ix, const struct json *weight_map, struct err *err)
{
	json_each_member(tensor, weight_map)
	{
		const char *name = json_text(tensor);

		if (name == NULL || st_find(ix, name) == NULL)
			return err_set(err, ST_INVALID,
				SHARD_INDEX_NAME
				": tensor %.200s is not in %.100s (line %u)",
				(const char *)tensor->at, (const char *)tensor[1].at,
				tensor->line);
	}
	return ST_OK;
}

static status open_indexed(
	struct st_index *ix, const char *dir, const char *path, struct err *err)
{
	const struct json *weight_map;
	struct json_file file;
	status st;

	st = json_file_read(&file, path, SHARD_INDEX_MAX, err);
	if (st != ST_OK)
		return st;
	weight_map = json_member(file.doc.values, "weight_map");
	if (!json_is(weight_map, JSON_OBJECT)) {
		st = err_set(err, ST_INVALID, SHARD_INDEX_NAME ": no object weight_map");
		goto out;
	}
	st = open_shards(ix, dir, weight_map, err);
	if (st != ST_OK)
		goto out;
	st = st_index_map(ix, err);
	if (st != ST_OK)
		goto out;
	st = check_assigned(ix, weight_map, err);
out:
	json_file_release(&file);
	return st;
}

/* *.safetensors files of dir that are not in the index; name: one of them. */
static uint32_t count_strays(const struct st_index *ix, const char *dir, char name[256])
{
	DIR *d = opendir(dir);
	struct dirent *e;
	uint32_t n = 0;

	if (d == NULL)
		return 0;
	while ((e = readdir(d)) != NULL) {
		const char *dot = strrchr(e->d_name, '.');

		if (dot == NULL || strcmp(dot, ".safetensors") != 0 ||
			find_file(ix, e->d_name) < ix->n_files)
			continue;
		snprintf(name, 256, "%s", e->d_name);
		n++;
	}
	closedir(d);
	return n;
}

/* Of a folder without an index and without SINGLE_NAME: how many shards the numbers in
 * the names of its files promise, model-00001-of-00094.safetensors; 0: there are none. */
static unsigned promised_shards(const char *dir)
{
	unsigned part, of, n = 0;
	DIR *d = opendir(dir);
	struct dirent *e;
	char name[64];

	if (d == NULL)
		return 0;
	while ((e = readdir(d)) != NULL) {
		if (sscanf(e->d_name, SHARD_SCAN, &part, &of) != 2)
			continue;
		snprintf(name, sizeof(name), SHARD_NAME, part, of);
		if (strcmp(e->d_name, name) == 0)
			n = MAX(n, of);
	}
	closedir(d);
	return n;
}

/* All shards of a set that is whole; what is missing is named. */
static status open_numbered(
	struct st_index *ix, const char *dir, unsigned n, struct err *err)
{
	char path[PATH_BYTES], name[64];
	status st = ST_OK;

	if (n > SHARDS_MAX)
		return err_set(err, ST_LIMIT, "%s: shards of %u, at most %u", dir, n,
			SHARDS_MAX);
	for (unsigned i = 1; i <= n && st == ST_OK; i++) {
		snprintf(name, sizeof(name), SHARD_NAME, i, n);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		if (access(path, F_OK) != 0)
			return err_set(err, ST_IO,
				"%s is missing, one of %u shards, and so is "
				"" SHARD_INDEX_NAME,
				path, n);
		st = st_index_add(ix, path, name, err);
	}
	if (st == ST_OK)
		log_info("%s: " SHARD_INDEX_NAME " is missing; all %u shards are there "
			 "and are read",
			dir, n);
	return st == ST_OK ? st_index_map(ix, err) : st;
}

static status open_plain(struct st_index *ix, const char *dir, struct err *err)
{
	char path[PATH_BYTES];
	unsigned n;
	status st;

	snprintf(path, sizeof(path), "%s/%s", dir, SINGLE_NAME);
	n = access(path, F_OK) == 0 ? 0 : promised_shards(dir);
	if (n > 0)
		return open_numbered(ix, dir, n, err);
	st = st_index_add(ix, path, SINGLE_NAME, err);
	return st == ST_OK ? st_index_map(ix, err) : st;
}

status st_open(struct st_index **out, const char *dir, struct err *err)
{
	struct st_index *ix = st_index_create(SHARDS_MAX);
	char path[PATH_BYTES], stray[256] = "";
	uint32_t n_strays;
	status st;

	snprintf(path, sizeof(path), "%s/%s", dir, SHARD_INDEX_NAME);
	st = access(path, F_OK) == 0 ? open_indexed(ix, dir, path, err)
				     : open_plain(ix, dir, err);
	if (st != ST_OK)
		goto out;
	n_strays = count_strays(ix, dir, stray);
	if (n_strays > 0)
		log_info(
			"%s: %u .safetensors files are no part of the checkpoint and are "
			"not read, for example %s",
			dir, n_strays, stray);
	*out = ix;
	ix = NULL;
out:
	st_close(ix);
	return st;
}
