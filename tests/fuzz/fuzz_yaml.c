/* SPDX-License-Identifier: Apache-2.0 */
/* links: base; covers: src/base/doc_yaml.c */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each document that was read is written as YAML and read again: it must be the same. */
static void round_trip(const json_t *value)
{
	struct adp_error err = {0};
	json_t *again;
	char *text;

	if (adp_doc_to_yaml(&text, value, &err))
		abort();
	if (adp_doc_yaml(&again, text, strlen(text), "again", &err) || json_array_size(again) != 1 ||
	    !json_equal(value, json_array_get(again, 0)))
		abort();
	json_decref(again);
	adp_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const skip[] = {"skip", NULL};
	struct adp_error err = {0};
	json_t *documents, *document;
	size_t i;

	if (adp_doc_yaml(&documents, (const char *)data, size, "fuzz", &err) == ADP_OK) {
		json_array_foreach (documents, i, document)
			round_trip(document);
		json_decref(documents);
	} else if (!err.code || !err.text[0]) {
		abort();
	}
	if (adp_doc_any_without(&documents, (const char *)data, size, skip, "fuzz", NULL) == ADP_OK)
		json_decref(documents);
	return 0;
}
