/* SPDX-License-Identifier: Apache-2.0 */
/* links: base; covers: src/base/doc_json.c */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/doc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was read is written and read again: it must be the same. */
static void round_trip(const json_t *value)
{
	struct adp_error err = {0};
	json_t *again;
	char *text;

	if (adp_doc_to_json(&text, value, &err))
		abort();
	if (adp_doc_json(&again, text, strlen(text), "again", &err) || !json_equal(value, again))
		abort();
	json_decref(again);
	adp_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const skip[] = {"skip", NULL};
	struct adp_error err = {0};
	json_t *value;

	if (adp_doc_json(&value, (const char *)data, size, "fuzz", &err) == ADP_OK) {
		round_trip(value);
		json_decref(value);
	} else if (!err.code || !err.text[0]) {
		abort();
	}
	if (adp_doc_any_without(&value, (const char *)data, size, skip, "fuzz", NULL) == ADP_OK)
		json_decref(value);
	return 0;
}
