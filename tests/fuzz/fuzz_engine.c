/* SPDX-License-Identifier: Apache-2.0 */
/* links: cost; covers: src/cost/engine.c */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adp/engine.h"
#include "base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first line is what the user asks for, the rest the table. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
	const size_t spec_len = end ? (size_t)(end - data) : size;
	const size_t skip = end ? spec_len + 1 : size;
	struct adp_engine *engine;
	struct adp_error err = {0};
	char *spec = adp_malloc(spec_len + 1);

	if (!spec)
		return 0;
	if (spec_len)
		memcpy(spec, data, spec_len);
	spec[spec_len] = '\0';
	const int rc = adp_engine_read(&engine, spec, (const char *)data + skip, size - skip, "fuzz",
	                               &err);
	if (rc ? engine || !err.code || !err.text[0] : !engine)
		abort();
	if (engine &&
	    (!engine->zero_mask || !engine->recompute_mask || !engine->precision_mask ||
	     !engine->vocab_multiple || !isfinite(engine->logit_bytes) || engine->reserve_frac > 0.9))
		abort();
	enum adp_optimizer optimizer;
	if (adp_optimizer_parse(&optimizer, spec, NULL) == ADP_OK && !adp_optimizer_name(optimizer)[0])
		abort();
	adp_engine_destroy(engine);
	adp_free(spec);
	return 0;
}
