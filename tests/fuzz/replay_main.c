/* Runs a fuzz target on each file of a folder: the corpus as a test of every build. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The block is exactly as long as the file, so that a sanitizer sees reads behind it. */
static int replay_file(const char *path)
{
	struct stat sb;
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	int rc = -1;

	if (f == NULL || fstat(fileno(f), &sb) != 0) {
		perror(path);
		goto out;
	}
	if (!S_ISREG(sb.st_mode)) {
		rc = 0;
		goto out;
	}
	data = malloc(sb.st_size > 0 ? (size_t)sb.st_size : 1);
	if (data == NULL || fread(data, 1, (size_t)sb.st_size, f) != (size_t)sb.st_size) {
		fprintf(stderr, "%s: cannot read %lld bytes\n", path,
			(long long)sb.st_size);
		goto out;
	}
	LLVMFuzzerTestOneInput(data, (size_t)sb.st_size);
	rc = 1;
out:
	free(data);
	if (f != NULL)
		fclose(f);
	return rc;
}

int main(int argc, char **argv)
{
	struct dirent *e;
	unsigned n_files = 0;
	DIR *dir;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	dir = opendir(argv[1]);
	if (dir == NULL) {
		perror(argv[1]);
		return 1;
	}
	while ((e = readdir(dir)) != NULL) {
		char path[4096];
		int n = snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
		int rc = n > 0 && (size_t)n < sizeof(path) ? replay_file(path) : -1;

		if (rc < 0)
			return 1;
		n_files += (unsigned)rc;
	}
	closedir(dir);
	printf("%u files of %s\n", n_files, argv[1]);
	if (n_files == 0) {
		fprintf(stderr, "%s holds no file: nothing was tested\n", argv[1]);
		return 1;
	}
	return 0;
}
