/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_DIGEST_H
#define ADP_BASE_DIGEST_H

#include <stddef.h>

/* XXH3-128 of the bytes as 32 hex digits. Tells stale inputs apart; not for security. */
enum { ADP_DIGEST_SIZE = 33 };
void adp_digest(char out[ADP_DIGEST_SIZE], const void *bytes, size_t len);

#endif
