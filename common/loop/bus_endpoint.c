/* Which endpoints a bus accepts. */
#include "common/loop/bus_core.h"

#include "common/loop/runtime.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

status bus_endpoint_check(const char *endpoint, struct err *err)
{
	char host[64];
	size_t len;
	struct in_addr a;

	if (strncmp(endpoint, "ipc:///", 7) == 0) {
		if (strlen(endpoint + 6) < RUNTIME_PATH_BYTES)
			return ST_OK;
		return err_set(err, ST_INVALID, "%s: a path of %zu bytes, at most %d",
			endpoint, strlen(endpoint + 6), RUNTIME_PATH_BYTES - 1);
	}
	if (strncmp(endpoint, "tcp://", 6) != 0)
		return err_set(err, ST_INVALID,
			"endpoint '%s' is neither ipc:///PATH nor tcp://HOST:PORT",
			endpoint);
	len = strcspn(endpoint + 6, ":");
	if (endpoint[6 + len] != ':' || len >= sizeof(host))
		return err_set(
			err, ST_INVALID, "endpoint '%s' has no HOST:PORT", endpoint);
	snprintf(host, sizeof(host), "%.*s", (int)len, endpoint + 6);
	if (inet_pton(AF_INET, host, &a) != 1 || ntohl(a.s_addr) >> 24 != 127)
		return err_set(err, ST_INVALID,
			"endpoint '%s': plain tcp is for loopback addresses "
			"(127.0.0.0/8) only",
			endpoint);
	return ST_OK;
}
