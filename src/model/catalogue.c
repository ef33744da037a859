/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "adp/model.h"
#include "base/alloc.h"
#include "base/data_embedded.h"
#include "base/file.h"
#include "base/strbuf.h"

enum { MAX_CONFIG_BYTES = 64 << 20 };

/* data/models/NAME.json, each with its origin in the key _source. */
static const char *const names[] = {
	"gemma-2-9b",   "gpt-oss-120b", "llama-2-13b",    "llama-2-70b",   "llama-2-7b",
	"llama-3-70b",  "llama-3-8b",   "llama-3.1-405b", "llama-3.1-70b", "llama-3.1-8b",
	"llama-3.2-1b", "llama-3.2-3b", "mistral-7b",     "mixtral-8x22b", "mixtral-8x7b",
	"qwen2-0.5b",   "qwen2-7b",     "qwen3-0.6b",     "qwen3-30b-a3b", "qwen3-8b",
	NULL,
};

const char *const *adp_model_catalogue(void)
{
	return names;
}

static const struct adp_data_file *find_embedded(const char *name)
{
	for (const struct adp_data_file *file = adp_data_files; file->name; file++) {
		size_t len = strlen(name);
		if (strncmp(file->name, "models/", 7) == 0 && strncmp(file->name + 7, name, len) == 0 &&
		    strcmp(file->name + 7 + len, ".json") == 0)
			return file;
	}
	return NULL;
}

static int fail_unknown(const char *spec, struct adp_error *err)
{
	struct adp_strbuf buf = {0};
	int rc;

	for (size_t i = 0; names[i]; i++)
		adp_strbuf_addf(&buf, "%s%s", i ? ", " : "", names[i]);
	rc = buf.failed ? adp_nomem(err)
	                : adp_fail(err, ADP_EINVAL,
	                           "model \"%.200s\" is neither a file nor a name of the catalogue; "
	                           "expected the path of a "
	                           "config.json, - for standard input, or one of %s",
	                           spec, buf.text);
	adp_strbuf_fini(&buf);
	return rc;
}

static int load_path(struct adp_model **out, const char *path, struct adp_error *err)
{
	char *text;
	size_t len;
	int rc = adp_file_read(&text, &len, path, MAX_CONFIG_BYTES, err);

	if (rc != ADP_OK)
		return rc;
	rc = adp_model_read(out, text, len, strcmp(path, "-") == 0 ? "standard input" : path, err);
	adp_free(text);
	return rc;
}

int adp_model_load(struct adp_model **out, const char *spec, struct adp_error *err)
{
	struct adp_strbuf inside = {0};
	struct stat info;
	int rc;

	*out = NULL;
	for (size_t i = 0; names[i]; i++) {
		const struct adp_data_file *file;
		if (strcasecmp(names[i], spec) != 0)
			continue;
		file = find_embedded(names[i]);
		if (!file)
			return adp_fail(err, ADP_EINTERNAL, "the catalogue has no data for %s", names[i]);
		return adp_model_read(out, (const char *)file->bytes, file->size, names[i], err);
	}
	if (strcmp(spec, "-") == 0)
		return load_path(out, spec, err);
	if (stat(spec, &info) != 0 && !strchr(spec, '/') && !strstr(spec, ".json"))
		return fail_unknown(spec, err);
	if (stat(spec, &info) != 0 || !S_ISDIR(info.st_mode))
		return load_path(out, spec, err);
	adp_strbuf_addf(&inside, "%s%s", spec,
	                spec[strlen(spec) - 1] == '/' ? "config.json" : "/config.json");
	rc = inside.failed ? adp_nomem(err) : load_path(out, inside.text, err);
	adp_strbuf_fini(&inside);
	return rc;
}
