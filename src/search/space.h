/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_SPACE_H
#define ADP_SEARCH_SPACE_H

#include "search/internal.h"

/* Between space.c, which says which degrees are tried, and shapes.c, which says what they cost. */

struct list {
	uint32_t value[256];
	uint32_t n;
};

/* Values of each degree that rules and pins allow. */
struct degrees {
	struct list tp, cp, ep, micro, vpp, zero, sp;
};

/* Fills the space's shapes, and the slots they stand on. ADP_EINFEASIBLE: no shape is legal. */
int shapes_build(struct space *space, const struct degrees *d, struct adp_error *err);

#endif
