/* A checkpoint folder: one file, or the shards that its index names. */
#include "common/model/safetensors_impl.h"

#include "common/base/log.h"
#include "common/model/json_file.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define SINGLE_NAME     "model.safetensors"
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

status st_open(struct st_index **out, const char *dir, struct err *err)
{
	struct st_index *ix = st_index_create(SHARDS_MAX);
	char path[PATH_BYTES], stray[256] = "";
	uint32_t n_strays;
	status st;

	snprintf(path, sizeof(path), "%s/%s", dir, SHARD_INDEX_NAME);
	if (access(path, F_OK) == 0) {
		st = open_indexed(ix, dir, path, err);
	} else {
		snprintf(path, sizeof(path), "%s/%s", dir, SINGLE_NAME);
		st = st_index_add(ix, path, SINGLE_NAME, err);
		if (st == ST_OK)
			st = st_index_map(ix, err);
	}
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
