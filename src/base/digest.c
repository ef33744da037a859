/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void adp_digest(char out[ADP_DIGEST_SIZE], const void *bytes, size_t len)
{
	XXH128_hash_t hash = XXH3_128bits(bytes, len);

	snprintf(out, ADP_DIGEST_SIZE, "%016llx%016llx", (unsigned long long)hash.high64,
	         (unsigned long long)hash.low64);
}
